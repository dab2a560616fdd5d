package computer

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/atelier-run/atelier/entity"
)

// A Program is the program that computers have at ProgramPath. Computers get it by a path, and an upgrade replaces or removes the file at
// this path while the server runs. Program therefore has the file open, and copies it once the path has another file or none.
type Program struct {
	path, copied string

	mu sync.Mutex
	// file is nil if the server may execute the program but not read it.
	file *os.File
}

const (
	// copyName is the name of the copy. Workspaces have no such name.
	copyName = ".program"
	// partialSuffix follows copyName in the name of a copy that is being written.
	partialSuffix = ".new"
)

// OpenProgram opens the program at a path. If it is the path of this program, it opens the file that this process runs. The copy is a file
// of folder, the folder of the drives, because computers have files of this folder already. A copy that an earlier process has left there
// is removed.
func OpenProgram(path, folder string) (*Program, error) {
	p := &Program{path: path, copied: filepath.Join(folder, copyName)}
	if err := p.removeCopies(); err != nil {
		return nil, err
	}
	source := path
	if self, err := os.Executable(); err == nil && self == path {
		source = "/proc/self/exe"
	}
	file, err := os.Open(source)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return nil, err
	}
	if err == nil {
		p.file = file
	}
	return p, nil
}

// Path returns a path of the program. It returns Unavailable if the program cannot be copied, for example because the disk is full.
func (p *Program) Path() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil {
		return p.path, nil
	}
	opened, err := p.file.Stat()
	if err != nil {
		return "", err
	}
	if at, err := os.Stat(p.path); err == nil && os.SameFile(at, opened) {
		return p.path, nil
	}
	if at, err := os.Stat(p.copied); err == nil && at.Size() == opened.Size() {
		return p.copied, nil
	}
	if err := p.copy(opened.Size()); err != nil {
		return "", entity.Errorf(entity.Unavailable, "the program of this server was replaced or removed, and cannot be copied: %v", err)
	}
	return p.copied, nil
}

// copy writes the copy. Only a complete file has the name of the copy.
func (p *Program) copy(size int64) (err error) {
	if err := p.removeCopies(); err != nil {
		return err
	}
	partial := p.copied + partialSuffix
	to, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.NewSectionReader(p.file, 0, size))
	// Users of computers other than the server's may read and execute the file, too, whatever the umask is.
	if err := errors.Join(err, to.Chmod(0o555), to.Close()); err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	return os.Rename(partial, p.copied)
}

// Close removes the copy.
func (p *Program) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil {
		return nil
	}
	return errors.Join(p.removeCopies(), p.file.Close())
}

// removeCopies removes the copy, and the partial copy of a process that was killed.
func (p *Program) removeCopies() error {
	for _, path := range []string{p.copied, p.copied + partialSuffix} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
