//go:build linux || darwin

package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent"
)

// systemDirs have the programs of the host and what these need. Most are links
// into /usr on most systems. Those that have sockets of the host are not shown whole:
// what is read-only can be connected to.
var systemDirs = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt",
	"/nix/store", "/nix/var/nix/profiles", "/gnu/store",
}

// privateDirs are what a fresh sandbox has of its own. They are few, and so are the
// files, since making and removing them is most of the work for a sandbox.
var privateDirs = []struct {
	path string
	mode fs.FileMode
}{
	{"/data", 0o755},
	{"/dev", 0o755},
	{"/etc", 0o755},
	{"/etc/profile.d", 0o755},
	{"/etc/ssl", 0o755},
	{"/home", 0o755},
	{"/home/user", 0o755},
	{"/mnt", 0o755},
	{"/proc", 0o555},
	// Not 0700: the user must get through to an interpreter that is installed there.
	{"/root", 0o711},
	{"/run", 0o755},
	{"/sys", 0o555},
	{"/tmp", 0o777 | fs.ModeSticky},
	{"/var", 0o755},
	{"/var/cache", 0o755},
	{"/var/lib", 0o755},
	{"/var/log", 0o755},
	{"/var/tmp", 0o777 | fs.ModeSticky},
}

// copiedFiles of /etc tell programs about the system, and nothing about this host
// or its users.
var copiedFiles = []string{
	"alpine-release", "debian_version", "fedora-release", "lsb-release", "os-release", "redhat-release", "system-release",
	"inputrc", "ld.so.cache", "ld.so.conf", "locale.conf", "localtime", "login.defs", "mime.types", "protocols", "services",
	"security/limits.conf", "security/pam_env.conf", "shells", "ssl/cert.pem", "ssl/openssl.cnf", "timezone",
}

// shownDirs of /etc are like copiedFiles, but shown and not copied. They may be
// patterns.
var shownDirs = []string{
	"alternatives", "crypto-policies", "fonts", "java*", "ld.so.conf.d", "pam.d", "perl", "pki/ca-trust", "pki/tls/certs",
	"python3*", "R", "ssl/certs",
}

// networkFiles are the host's only for sandboxes that use its network.
var networkFiles = []string{"/etc/resolv.conf", "/etc/hosts"}

// A layout is what the root of a fresh isolated sandbox consists of.
type layout struct {
	dirs  []layoutDir
	files []layoutFile
	links []layoutLink
	binds []agent.Bind
}

type layoutDir struct {
	path string
	mode fs.FileMode
	user bool // it is the user's
}

type layoutFile struct {
	path string
	mode fs.FileMode
	data []byte
}

type layoutLink struct{ path, target string }

// newLayout looks at the host.
func newLayout(interpreters []*interpreter, searchPath string, oneUser, hostNetwork bool) (*layout, error) {
	l := new(layout)
	for _, d := range privateDirs {
		l.dirs = append(l.dirs, layoutDir{d.path, d.mode, d.path == "/home/user" || d.path == "/data"})
	}
	l.links = append(l.links,
		layoutLink{"/var/run", "/run"},
		layoutLink{"/etc/mtab", "/proc/self/mounts"},
	)
	if err := l.addSystem(); err != nil {
		return nil, err
	}
	for _, program := range interpreters {
		if err := l.addInterpreter(program); err != nil {
			return nil, err
		}
	}
	for _, name := range copiedFiles {
		l.copyEtc(name)
	}
	for _, pattern := range shownDirs {
		l.showEtc(pattern)
	}
	for _, f := range writtenFiles(searchPath, oneUser) {
		l.addFile(f)
	}
	if hostNetwork {
		for _, name := range networkFiles {
			data, err := os.ReadFile(name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			l.addFile(layoutFile{name, 0o644, data})
		}
	}
	return l, nil
}

// addSystem adds the directories that have the programs of the host.
func (l *layout) addSystem() error {
	for _, dir := range systemDirs {
		info, err := os.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case info.IsDir():
			l.addBind(dir, false)
		case info.Mode().Type() == fs.ModeSymlink:
			target, err := os.Readlink(dir)
			if err != nil {
				return err
			}
			l.links = append(l.links, layoutLink{dir, target})
		}
	}
	return nil
}

// addInterpreter adds the directories that the interpreter needs and that are not
// there anyway.
func (l *layout) addInterpreter(program *interpreter) error {
	for _, prefix := range program.Prefixes {
		if prefix == "/" || l.shows(prefix) {
			continue
		}
		if _, err := os.Stat(prefix); err != nil {
			return err
		}
		l.addBind(prefix, true)
	}
	if !l.shows(program.Executable) {
		return fmt.Errorf("%s is not in the directories of its installation", program.Executable)
	}
	return nil
}

// shows says whether the sandbox sees a path of the host: through a bind, or a link
// such as /bin.
func (l *layout) shows(name string) bool {
	return slices.ContainsFunc(l.binds, func(b agent.Bind) bool { return agent.Below(name, b.Path) }) ||
		slices.ContainsFunc(l.links, func(k layoutLink) bool { return slices.Contains(systemDirs, k.path) && agent.Below(name, k.path) })
}

// addBind shows a directory of the host.
func (l *layout) addBind(dir string, optional bool) {
	l.binds = append(l.binds, agent.Bind{Path: dir, Optional: optional})
	l.addDir(dir)
}

// addDir adds a directory and those above it.
func (l *layout) addDir(dir string) {
	if dir == "/" || slices.ContainsFunc(l.dirs, func(d layoutDir) bool { return d.path == dir }) {
		return
	}
	l.addDir(path.Dir(dir))
	l.dirs = append(l.dirs, layoutDir{path: dir, mode: 0o755})
}

// addFile adds a file, in place of one of this path that may be there.
func (l *layout) addFile(f layoutFile) {
	for i := range l.files {
		if l.files[i].path == f.path {
			l.files[i] = f
			return
		}
	}
	l.addDir(path.Dir(f.path))
	l.files = append(l.files, f)
}

// copyEtc adds a file of /etc, if the host has it and lets everyone read it.
func (l *layout) copyEtc(name string) {
	name = "/etc/" + name
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o004 == 0 {
		return
	}
	// A link to what the sandbox sees, such as the name of the time zone, says more
	// than its copy.
	if target, err := os.Readlink(name); err == nil {
		absolute := target
		if !path.IsAbs(target) {
			absolute = path.Join(path.Dir(name), target)
		}
		if l.shows(absolute) {
			l.links = append(l.links, layoutLink{name, target})
			return
		}
	}
	if data, err := os.ReadFile(name); err == nil {
		l.addFile(layoutFile{name, 0o644, data})
	}
}

// showEtc shows the directories of /etc that the pattern means.
func (l *layout) showEtc(pattern string) {
	dirs, err := filepath.Glob("/etc/" + pattern)
	if err != nil {
		return
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err == nil && info.IsDir() && info.Mode().Perm()&0o005 == 0o005 {
			l.addBind(dir, true)
		}
	}
}

// writtenFiles returns files of /etc that say what is so only in a sandbox.
func writtenFiles(searchPath string, oneUser bool) []layoutFile {
	id := agent.UserID
	if oneUser {
		id = 0
	}
	// No password is right, and no shadow file is asked.
	const passwd = `root:*:0:0:root:/root:%[2]s
daemon:*:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:*:2:2:bin:/bin:/usr/sbin/nologin
sys:*:3:3:sys:/dev:/usr/sbin/nologin
mail:*:8:8:mail:/var/mail:/usr/sbin/nologin
www-data:*:33:33:www-data:/var/www:/usr/sbin/nologin
user:*:%[1]d:%[1]d::/home/user:%[2]s
nobody:*:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
`
	const group = `root:x:0:
daemon:x:1:
bin:x:2:
sys:x:3:
adm:x:4:
tty:x:5:
disk:x:6:
mail:x:8:
sudo:x:27:user
www-data:x:33:
shadow:x:42:
users:x:100:
user:x:%d:
nogroup:x:65534:
`
	const profile = `# The PATH of a login shell is that of all commands in this sandbox.
PATH=%s
export PATH

if [ "${PS1-}" ] && [ "${BASH-}" ]; then
  PS1='\u@\h:\w\$ '
fi

for script in /etc/profile.d/*.sh; do
  if [ -r "$script" ]; then
    . "$script"
  fi
done
unset script
`
	shell := "/bin/sh"
	if _, err := os.Stat("/bin/bash"); err == nil {
		shell = "/bin/bash"
	}
	const nsswitch = `passwd: files
group: files
shadow: files
hosts: files dns
networks: files
protocols: files
services: files
`
	const hosts = `127.0.0.1 localhost ` + agent.Hostname + `
::1 localhost ip6-localhost ip6-loopback
`
	const sudoers = `root ALL=(ALL:ALL) ALL
user ALL=(ALL:ALL) NOPASSWD: ALL
`
	quotedPath := "'" + strings.ReplaceAll(searchPath, "'", `'\''`) + "'"
	return []layoutFile{
		{"/etc/group", 0o644, fmt.Appendf(nil, group, id)},
		{"/etc/hostname", 0o644, []byte(agent.Hostname + "\n")},
		{"/etc/hosts", 0o644, []byte(hosts)},
		{"/etc/nsswitch.conf", 0o644, []byte(nsswitch)},
		{"/etc/passwd", 0o644, fmt.Appendf(nil, passwd, id, shell)},
		{"/etc/profile", 0o644, fmt.Appendf(nil, profile, quotedPath)},
		{"/etc/resolv.conf", 0o644, nil},
		{"/etc/sudoers", 0o440, []byte(sudoers)},
	}
}

// create makes the files of a fresh sandbox.
func (l *layout) create(root string, oneUser bool) error {
	// The first directory tells what the umask of this process takes away.
	const all = 0o777
	if err := os.Mkdir(root, all); err != nil {
		return err
	}
	info, err := os.Stat(root)
	if err != nil {
		return err
	}
	umask := all &^ info.Mode().Perm()
	if err := os.Chmod(root, 0o755); err != nil {
		return err
	}
	for _, d := range l.dirs {
		name := filepath.Join(root, d.path)
		if err := os.Mkdir(name, d.mode.Perm()); err != nil {
			return err
		}
		if d.mode&umask != 0 || d.mode != d.mode.Perm() {
			if err := os.Chmod(name, d.mode); err != nil {
				return err
			}
		}
		if d.user && !oneUser {
			if err := os.Chown(name, agent.UserID, agent.UserID); err != nil {
				return err
			}
		}
	}
	for _, f := range l.files {
		name := filepath.Join(root, f.path)
		if err := os.WriteFile(name, f.data, f.mode); err != nil {
			return err
		}
		if f.mode&umask != 0 {
			if err := os.Chmod(name, f.mode); err != nil {
				return err
			}
		}
	}
	for _, k := range l.links {
		if err := os.Symlink(k.target, filepath.Join(root, k.path)); err != nil {
			return err
		}
	}
	return nil
}

// createPlain makes the files of a fresh sandbox that is not isolated.
func createPlain(root string) error {
	for _, name := range []string{"", "/home", "/home/user", "/root", "/tmp"} {
		if err := os.Mkdir(root+name, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// checkApart returns an error if sandboxes whose files are in dir could see each
// other's through the binds.
func (l *layout) checkApart(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for _, b := range l.binds {
		source, err := filepath.EvalSymlinks(b.Path)
		if err != nil {
			return err
		}
		if agent.Below(real, source) {
			return fmt.Errorf("the directory %s is in %s, which sandboxes see", dir, b.Path)
		}
	}
	return nil
}
