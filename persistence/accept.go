package persistence

import "fmt"

// Acceptance is what Accept found.
type Acceptance struct {
	// Events is the number of events that the journal holds, by the sequences of its feeds.
	Events uint64
	// Missing is how many more events its marks promise; 0 where the marks are missing or cannot be read.
	Missing uint64
}

// Accept makes a data directory open as it stands, whatever its marks promise: its operator has restored it in parts, or
// gives up what is lost. The journal must not be open, and must be readable. It gets a new timeline, so that cursors
// from before are refused; its events stay as they are.
func Accept(o Options) (Acceptance, error) {
	o = o.withDefaults()
	a, err := accept(o)
	if err != nil {
		return a, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	return a, nil
}

func accept(o Options) (a Acceptance, err error) {
	d := &directory{fs: o.FS, path: o.Dir, marksPath: o.Marks}
	for _, part := range []string{formatName, storeName} {
		if has, err := d.has(part); err != nil {
			return a, err
		} else if !has {
			return a, damaged("%s is missing", d.name(part))
		}
	}
	if d.lock, err = d.fs.Lock(d.name(lockName)); err != nil {
		return a, fmt.Errorf("in use by another process: %w", err)
	}
	defer d.lock.Close()
	text, err := d.read()
	if err != nil {
		return a, err
	}
	if d.format, err = parseFormat(text); err != nil {
		return a, err
	}
	held, err := o.verifier(d).verify(nil, d.format.partitions)
	if err != nil {
		return a, err
	}
	promised, _, _ := readMarks(o.FS, o.Marks) // marks that cannot be read are replaced
	for p, has := range held.shares {
		a.Events += has.sequence
		if promised != nil && p < len(promised.shares) {
			a.Missing += max(promised.shares[p].sequence, has.sequence) - has.sequence
		}
	}
	_, err = d.accept(held, newID())
	return a, err
}
