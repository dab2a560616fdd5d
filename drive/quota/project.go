package quota

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel says how the kernel treats the project quotas of a file system.
type kernel int

const (
	ignores  kernel = iota
	counts          // it counts the use of projects
	enforces        // and refuses writes that exceed a limit
)

// From <linux/quota.h>, <linux/dqblk_xfs.h> and <linux/fs.h>.
const (
	projectQuota   = 2 // PRJQUOTA
	cmdGetQuota    = 0x800007
	cmdSetQuota    = 0x800008
	cmdGetState    = 'X'<<8 + 8 // Q_XGETQSTATV
	stateCounts    = 1 << 4     // FS_QUOTA_PDQ_ACCT
	stateEnforces  = 1 << 5     // FS_QUOTA_PDQ_ENFD
	validLimits    = 1 | 4      // QIF_BLIMITS | QIF_ILIMITS
	quotaBlock     = 1024       // bytes for each block of a limit
	getAttributes  = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes  = 0x401c5820 // FS_IOC_FSSETXATTR
	projectInherit = 0x200      // FS_XFLAG_PROJINHERIT
)

// attributes is struct fsxattr.
type attributes struct {
	flags, extentSize, extents, project, cowExtentSize uint32
	_                                                  [8]byte
}

// block is struct if_dqblk.
type block struct {
	bytesHard, bytesSoft, bytes uint64
	filesHard, filesSoft, files uint64
	bytesTime, filesTime        uint64
	valid                       uint32
	_                           [4]byte
}

// quotactl calls quotactl_fd(2), which is there from Linux 5.14.
func quotactl(at *os.File, command int, id uint32, argument unsafe.Pointer) error {
	_, _, code := unix.Syscall6(unix.SYS_QUOTACTL_FD, at.Fd(), uintptr(command<<8|projectQuota), uintptr(id), uintptr(argument), 0, 0)
	if code != 0 {
		return code
	}
	return nil
}

// detect returns how the kernel treats the project quotas of a folder's file system.
func detect(dir string) kernel {
	at, err := os.Open(dir)
	if err != nil {
		return ignores
	}
	defer at.Close()
	// state is struct fs_quota_statv. Its first byte is the version of the struct.
	state := [256]byte{1}
	if err := quotactl(at, cmdGetState, 0, unsafe.Pointer(&state)); err != nil {
		return ignores
	}
	switch flags := *(*uint16)(unsafe.Pointer(&state[2])); {
	case flags&stateEnforces != 0:
		return enforces
	case flags&stateCounts != 0:
		return counts
	}
	return ignores
}

// readProject returns the use of a project.
func readProject(dir string, project uint32) (Usage, error) {
	at, err := os.Open(dir)
	if err != nil {
		return Usage{}, err
	}
	defer at.Close()
	b, err := readBlock(at, project)
	return Usage{b.bytes, b.files}, err
}

func readBlock(at *os.File, project uint32) (b block, err error) {
	err = quotactl(at, cmdGetQuota, project, unsafe.Pointer(&b))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) { // xfs has none for a project without files
		return block{}, nil
	}
	return b, err
}

// openProject returns the project of the drive in a folder and sets its limit. It makes the drive a project if it is empty, and
// returns 0 if it is neither a project nor empty: an entry of another project cannot be moved within the drive.
func openProject(dir, home string, limit Limit) (uint32, error) {
	at, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer at.Close()
	project, err := projectOf(home)
	if err != nil {
		return 0, err
	}
	if project == 0 {
		if project, err = newProject(at, home); project == 0 {
			return 0, err
		}
	}
	b := block{
		bytesHard: (limit.Bytes + quotaBlock - 1) / quotaBlock, filesHard: limit.Files, valid: validLimits,
	}
	return project, quotactl(at, cmdSetQuota, project, unsafe.Pointer(&b))
}

func projectOf(path string) (uint32, error) {
	folder, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer folder.Close()
	a, err := readAttributes(folder)
	if a.flags&projectInherit == 0 {
		return 0, err
	}
	return a.project, err
}

func readAttributes(file *os.File) (a attributes, err error) {
	_, _, code := unix.Syscall(unix.SYS_IOCTL, file.Fd(), getAttributes, uintptr(unsafe.Pointer(&a)))
	if code != 0 {
		return a, &os.PathError{Op: "read the project of", Path: file.Name(), Err: code}
	}
	return a, nil
}

// newProject makes an empty drive a project and returns its id, or 0 if the drive is not empty. New entries inherit the project.
// The folder above becomes part of it last, so that a drive that is only half a project is not taken for one.
func newProject(at *os.File, home string) (uint32, error) {
	folders := []string{filepath.Join(home, "files"), filepath.Join(home, "tmp"), home}
	for i, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return 0, err
		}
		if most := map[bool]int{false: 0, true: 2}[i == 2]; len(entries) > most {
			return 0, nil
		}
	}
	project, err := unusedProject(at, home)
	if err != nil {
		return 0, err
	}
	for _, path := range folders {
		if err := setProject(path, project); err != nil {
			return 0, err
		}
	}
	return project, nil
}

// unusedProject returns an id that no file has. The folder's inode is the first candidate, because no other drive has it.
func unusedProject(at *os.File, home string) (uint32, error) {
	var st unix.Stat_t
	if err := unix.Stat(home, &st); err != nil {
		return 0, err
	}
	for next := range uint32(16) {
		candidate := uint32(st.Ino) + next
		if candidate == 0 {
			continue
		}
		b, err := readBlock(at, candidate)
		if err != nil {
			return 0, err
		}
		if b.files == 0 && b.bytes == 0 {
			return candidate, nil
		}
	}
	return 0, fmt.Errorf("no project id is unused near %d", uint32(st.Ino))
}

func setProject(path string, project uint32) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	a, err := readAttributes(folder)
	if err != nil {
		return err
	}
	a.project, a.flags = project, a.flags|projectInherit
	if _, _, code := unix.Syscall(unix.SYS_IOCTL, folder.Fd(), setAttributes, uintptr(unsafe.Pointer(&a))); code != 0 {
		return &os.PathError{Op: "set the project of", Path: path, Err: code}
	}
	return nil
}

// count asks the kernel for the use of a drive.
func (l *Limiter) count(a *account) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	used, err := l.readProject(l.options.Dir, a.project)
	if err != nil {
		return fmt.Errorf("quota: cannot read what a project uses: %w", err)
	}
	a.used, a.added, a.measured = used, Usage{}, time.Now()
	return nil
}

// isCounted reports whether the kernel counts the use of a drive. At the first call for a drive, it makes an empty drive a
// project and sets its limit.
func (l *Limiter) isCounted(a *account, workspaceID string) bool {
	if l.kernel == ignores {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.isOpened {
		project, err := openProject(l.options.Dir, filepath.Join(l.options.Dir, workspaceID), l.options.Limit)
		if errors.Is(err, fs.ErrNotExist) { // the drive is about to be created
			return false
		}
		a.isOpened = true
		if err != nil {
			l.options.Log.Warn("the kernel does not count what a drive uses; it is walked", "workspace", workspaceID, "error", err)
		}
		a.project = project
	}
	return a.project != 0
}

// Prepare makes a new drive with empty folders a project of its own if the file system can do that.
func (l *Limiter) Prepare(workspaceID string) {
	if l.isLimited() {
		l.isCounted(l.account(workspaceID), workspaceID)
	}
}
