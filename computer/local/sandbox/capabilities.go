package sandbox

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// capabilities returns the capabilities that an init keeps once it has built the computer, to start processes as another user
// and to end them.
func (c *Config) capabilities() []uintptr {
	kept := []uintptr{unix.CAP_SETPCAP, unix.CAP_SYS_ADMIN} // the latter for the namespaces of private and nested processes
	if !c.Unprivileged {
		kept = append(kept, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL)
	}
	return kept
}

// ambient returns the capabilities that a process of an unprivileged server must be given explicitly when it starts. The kernel
// gives root its capabilities.
func (c *Config) ambient() []uintptr {
	if !c.Unprivileged {
		return nil
	}
	return c.capabilities()
}

// limitCapabilities gives up all capabilities of the calling thread but kept, also for the programs that it starts.
func limitCapabilities(kept []uintptr) error {
	if err := boundCapabilities(kept); err != nil {
		return err
	}
	return setCapabilities(kept)
}

// boundCapabilities gives up all capabilities but kept that programs which the calling thread starts could get.
func boundCapabilities(kept []uintptr) error {
	for one := uintptr(0); one <= unix.CAP_LAST_CAP; one++ {
		if slices.Contains(kept, one) {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, one, 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: the kernel does not know this one
			return fmt.Errorf("cannot give up capability %d: %w", one, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot give up ambient capabilities: %w", err)
	}
	return nil
}

// setCapabilities sets the effective, permitted and inheritable capabilities of the calling thread.
func setCapabilities(kept []uintptr) error {
	var sets [2]unix.CapUserData
	for _, one := range kept {
		bit := uint32(1) << (one % 32)
		set := &sets[one/32]
		set.Effective, set.Permitted, set.Inheritable = set.Effective|bit, set.Permitted|bit, set.Inheritable|bit
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("cannot set the capabilities: %w", err)
	}
	return nil
}
