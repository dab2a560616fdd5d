package drive

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/drive/quota"
)

// CountHeld makes files count for a drive that were removed from all folders while processes have them open or mapped. processes returns
// the ids on this machine of the processes of a workspace's computer. CountHeld may be called once, also while drives are measured.
// Where the kernel counts the use of drives (package quota), such files count without it.
func (d *Drives) CountHeld(processes func(workspaceID string) []int) { d.holders.Store(&processes) }

// held returns the use of files on a device that the processes of a workspace's computer hold and no folder has. Files that this
// process may not read do not count, and neither do files in messages between processes that no process has received yet.
func (d *Drives) held(ctx context.Context, workspaceID string, device uint64) (quota.Usage, error) {
	processes := d.holders.Load()
	if processes == nil {
		return quota.Usage{}, nil
	}
	h := holding{device: device, found: map[uint64]int64{}}
	for _, pid := range (*processes)(workspaceID) {
		if err := ctx.Err(); err != nil {
			return quota.Usage{}, err
		}
		h.addOpen(pid)
		h.addMapped(pid)
	}
	var used quota.Usage
	for _, blocks := range h.found {
		used.Files++
		used.Bytes += uint64(blocks) * statBlock
	}
	return used, nil
}

// A holding has the removed files of a device, and their blocks, by inode.
type holding struct {
	device uint64
	found  map[uint64]int64
}

func (h *holding) add(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	if uint64(st.Dev) == h.device && st.Nlink == 0 {
		h.found[st.Ino] = st.Blocks
	}
	return nil
}

// addOpen adds the open files of a process, and the open files of its threads that have a table of open files of their own.
func (h *holding) addOpen(pid int) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	for _, thread := range names(dir) {
		const files = 2 // KCMP_FILES
		id, _ := strconv.Atoi(thread)
		if id != pid {
			if order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(pid), uintptr(id), files, 0, 0, 0); errno == 0 && order == 0 {
				continue
			}
		}
		open := filepath.Join(dir, thread, "fd")
		for _, fd := range names(open) {
			_ = h.add(filepath.Join(open, fd)) // it was closed meanwhile
		}
	}
}

// addMapped adds the files that a process has mapped. Their blocks are known to a server with CAP_CHECKPOINT_RESTORE; otherwise the
// length of the mapping stands for them.
func (h *holding) addMapped(pid int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return
	}
	device := fmt.Sprintf("%02x:%02x", unix.Major(h.device), unix.Minor(h.device))
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(strings.TrimSpace(line), " (deleted)") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[3] != device {
			continue
		}
		inode, err := strconv.ParseUint(fields[4], 10, 64)
		if err != nil || h.found[inode] > 0 || h.add(fmt.Sprintf("/proc/%d/map_files/%s", pid, fields[0])) == nil {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		first, err1 := strconv.ParseUint(from, 16, 64)
		last, err2 := strconv.ParseUint(to, 16, 64)
		if err1 == nil && err2 == nil && last > first {
			h.found[inode] = int64((last - first) / statBlock)
		}
	}
}

// names returns the names in a folder of /proc, or none if it cannot be read, because the process has ended.
func names(dir string) []string {
	folder, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer folder.Close()
	all, _ := folder.Readdirnames(-1)
	return all
}
