package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// write writes a value to a file of a group. The file exists: the kernel has made it.
func write(dir, name, value string) error {
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(value)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", value, err)
	}
	return nil
}

// readNumber reads a file of a group that has one number.
func readNumber(dir, name string) (int64, error) {
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(content)), 10, 64)
}

// readField reads one number of a file of a group that has lines with a name and a number. It returns 0 if there is no such
// line: the kernel is older than it.
func readField(dir, name, field string) (uint64, error) {
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == field {
			return strconv.ParseUint(value, 10, 64)
		}
	}
	return 0, nil
}

// listProcesses returns the ids of the processes in a group, without the processes of groups below it.
func listProcesses(dir string) (processes []int, err error) {
	content, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(content)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		processes = append(processes, pid)
	}
	return processes, nil
}
