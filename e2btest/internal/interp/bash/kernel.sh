# A Bash kernel. It reads command lines of the form
#
#     __e2b_begin NUMBER COUNT CWD AFTER; eval CODE </dev/null 4>&-; __e2b_end NUMBER
#
# from standard input, and says on descriptor 4 what the Python kernel says there. The
# other program reads standard output and standard error.
#
# SIGINT is ignored but while CODE runs, so that it can tear neither lines that are
# read nor such that are written. It makes the shell drop the rest of the line. So the
# other program sends the end once more after it, and repeats the signal. A trap that
# CODE sets for SIGINT lasts as long as it: asking for it takes a child, and waiting for
# one is where the shell can fail to survive the signal.

exec 3>&-
set +mH +o history
unset HISTFILE
trap '' INT
PS1= PS2= PROMPT_COMMAND= __e2b_cell=

__e2b_line() { # NUMBER LINE
  builtin printf '%s\n%s\n' "{\"seq\": $1, \"size\": $((${#2} + 1))}" "$2" >&4
}

__e2b_begin() { # NUMBER COUNT CWD AFTER
  __e2b_cell=$1 __e2b_after=$4
  [[ -z $3 ]] || builtin cd -- "$3" 2>/dev/null || :
  __e2b_line "$1" "{\"type\": \"number_of_executions\", \"execution_count\": $2}"
  trap - INT
}

__e2b_end() { # NUMBER
  local status=$? IFS=$' \t\n'
  [[ $1 == "$__e2b_cell" ]] || return 0
  trap '' INT
  builtin echo -n # or what an interrupt left in the buffer would be written to the wrong place
  __e2b_cell= PS1= PS2= PROMPT_COMMAND=
  eval "$__e2b_after" 2>/dev/null
  if [[ $status != 0 ]]; then
    __e2b_line "$1" "{\"type\": \"error\", \"name\": \"\", \"value\": \"$status\", \"traceback\": \"\"}"
  fi
  builtin printf '%s\n' "{\"seq\": $1, \"end\": true}" >&4
}

builtin printf '%s\n' '{"ready": true}' >&4
