package drive

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// An owner is who a new entry belongs to, so that the workspace's processes can use what arrives through the drive.
type owner struct{ uid, gid uint32 }

// owner is the one of the file that is replaced, or else of the folder.
func (p *place) owner() (owner, error) {
	if p.isFile() {
		return owner{p.st.Uid, p.st.Gid}, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(p.parent.fd(), &st); err != nil {
		return owner{}, err
	}
	return owner{st.Uid, st.Gid}, nil
}

// give makes an entry belong to the owner; without the privilege it stays the server's.
func (o owner) give(file *os.File) error {
	if o.isServer() {
		return nil
	}
	return unprivileged(unix.Fchown(int(file.Fd()), int(o.uid), int(o.gid)))
}

// giveName does the same for an entry that is not open, such as a link.
func (o owner) giveName(root *os.Root, name string) error {
	if o.isServer() {
		return nil
	}
	return unprivileged(root.Lchown(name, int(o.uid), int(o.gid)))
}

// giveLink does the same for a link in a folder.
func (o owner) giveLink(folder handle, name string) error {
	if o.isServer() {
		return nil
	}
	return unprivileged(unix.Fchownat(folder.fd(), name, int(o.uid), int(o.gid), unix.AT_SYMLINK_NOFOLLOW))
}

func (o owner) isServer() bool { return int(o.uid) == os.Geteuid() && int(o.gid) == os.Getegid() }

func unprivileged(err error) error {
	if errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}
