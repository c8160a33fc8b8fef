// Commands and terminals.

import { until } from './harness.mjs'

export async function commands(t) {
  const { CommandExitError, TimeoutError, NotFoundError } = t.base
  const sandbox = await t.create()
  const run = (...args) => sandbox.commands.run(...args)

  const seen = { out: '', err: '' }
  const hello = await run('echo "sum $((6 * 7))"; echo careful >&2', {
    onStdout: (s) => (seen.out += s),
    onStderr: (s) => (seen.err += s),
  })
  t.same('the result of a command', [hello.stdout, hello.stderr, hello.exitCode], ['sum 42\n', 'careful\n', 0])
  t.same('its output as it came', seen, { out: 'sum 42\n', err: 'careful\n' })
  const placed = await run('pwd; echo $WORD', { cwd: '/tmp', envs: { WORD: 'a "b" $c' } })
  t.same('a directory and variables', placed.stdout, '/tmp\na "b" $c\n')
  t.same('commands run as user', (await run('id -un')).stdout, 'user\n')
  t.same('or as root', (await run('id -un', { user: 'root' })).stdout, 'root\n')

  const bad = await t.throws('a failing command throws', () => run('echo no >&2; exit 3'), CommandExitError)
  t.same('the error has its exit code and output', [bad.exitCode, bad.stderr], [3, 'no\n'])
  await t.throws('a command that takes too long throws', () => run('sleep 60', { timeoutMs: 300 }), TimeoutError)

  const cat = await run('cat; echo end', { background: true, stdin: true })
  await cat.sendStdin('one\n')
  await sandbox.commands.sendStdin(cat.pid, 'two\n')
  await cat.closeStdin()
  t.same('standard input and its end', (await cat.wait()).stdout, 'one\ntwo\nend\n')

  const server = await run('read line; echo "got $line"; sleep 600', { background: true, stdin: true })
  const processes = await sandbox.commands.list()
  const own = processes.find((p) => p.pid === server.pid)
  t.check('the list has the command as it was given', own?.args.some((a) => a.includes('sleep 600')), processes)
  await server.disconnect()
  let joined = ''
  const handle = await sandbox.commands.connect(server.pid, { onStdout: (s) => (joined += s) })
  t.same('connect gives the process', handle.pid, server.pid)
  await handle.sendStdin('it\n')
  await until('output after connect', () => joined, (s) => s.endsWith('\n'))
  t.same('output after connect', joined, 'got it\n')
  t.same('kill by handle', await handle.kill(), true)
  const killed = await t.throws('a killed command throws', () => handle.wait(), CommandExitError)
  t.check('its exit code is not 0', killed.exitCode !== 0, killed)
  t.same('kill of what has ended', await sandbox.commands.kill(server.pid), false)
  // The exit is known for half a minute.
  const late = await sandbox.commands.connect(server.pid)
  await t.throws('connect to what has ended gives its end', () => late.wait(), CommandExitError)
  await t.throws('connect to what never was', () => sandbox.commands.connect(4_000_000), NotFoundError)
  t.same('at the end no process is listed', await sandbox.commands.list(), [])
}

export async function terminals(t) {
  const sandbox = await t.create()
  const bytes = (text) => new TextEncoder().encode(text)
  const reader = () => {
    const decoder = new TextDecoder()
    const read = { text: '', onData: (data) => (read.text += decoder.decode(data, { stream: true })) }
    return read
  }
  const first = reader()
  const terminal = await sandbox.pty.create({
    cols: 91, rows: 33, cwd: '/tmp', envs: { WORD: 'deep' }, onData: first.onData, timeoutMs: 0,
  })
  // What is typed is echoed, so no answer may be a part of its question.
  await sandbox.pty.sendInput(terminal.pid, bytes('echo "<$(stty size)|$PWD|$WORD>"\n'))
  await until('the answer of a terminal', () => first.text, (s) => s.includes('<33 91|/tmp|deep>'))
  t.check('a terminal has its size, directory and variables', first.text.includes('<33 91|/tmp|deep>'))
  await sandbox.pty.resize(terminal.pid, { cols: 70, rows: 20 })
  await sandbox.pty.sendInput(terminal.pid, bytes('echo "<$(stty size)>"\n'))
  await until('the new size', () => first.text, (s) => s.includes('<20 70>'))
  t.check('resize changes the size', first.text.includes('<20 70>'))

  await terminal.disconnect()
  const second = reader()
  const again = await sandbox.pty.connect(terminal.pid, { onData: second.onData, timeoutMs: 0 })
  await sandbox.pty.sendInput(again.pid, bytes('echo "<$((40 + 2))>"\n'))
  await until('the answer after connect', () => second.text, (s) => s.includes('<42>'))
  t.check('connect goes on with the terminal', second.text.includes('<42>'))
  t.same('kill of a terminal', await sandbox.pty.kill(again.pid), true)
  await t.throws('a killed terminal throws', () => again.wait(), t.base.CommandExitError)
  t.same('a second kill of a terminal', await sandbox.pty.kill(again.pid), false)

  const exiting = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {}, timeoutMs: 0 })
  await sandbox.pty.sendInput(exiting.pid, bytes('exit 7\n'))
  const ended = await t.throws('a shell that fails throws', () => exiting.wait(), t.base.CommandExitError)
  t.same('with its exit code', ended.exitCode, 7)
}
