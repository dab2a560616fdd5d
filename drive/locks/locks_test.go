package locks_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/atelier-run/atelier/drive/locks"
)

// memory is a Store that holds one file.
type memory struct{ content []byte }

func (m *memory) ReadState(string) ([]byte, error) { return m.content, nil }

func (m *memory) WriteState(_ string, content []byte) error {
	m.content = append([]byte(nil), content...)
	return nil
}

func (m *memory) AppendState(_ string, content []byte) error {
	m.content = append(m.content, content...)
	return nil
}

func load(t *testing.T, store locks.Store) *locks.Table {
	t.Helper()
	return loadWith(t, store, func(string) bool { return true })
}

func loadWith(t *testing.T, store locks.Store, exists func(path string) bool) *locks.Table {
	t.Helper()
	table, err := locks.Load(store, slog.New(slog.DiscardHandler), exists)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestCheckAndEnd has one lock for each case, and the effects of one change.
func TestCheckAndEnd(t *testing.T) {
	writes := func(path string) locks.Effect { return locks.Effect{Path: path} }
	adds := func(path string) locks.Effect { return locks.Effect{Path: path, ChangesParent: true} }
	removes := func(path string) locks.Effect {
		return locks.Effect{Path: path, ChangesParent: true, IsDeep: true, Removes: true}
	}
	replaces := func(path string) locks.Effect { return locks.Effect{Path: path, IsDeep: true} }
	for name, test := range map[string]struct {
		lock              locks.Lock
		effect            locks.Effect
		isRefused, isOver bool
	}{
		"the file":                    {locks.Lock{Path: "d/a"}, writes("d/a"), true, false},
		"beside the file":             {locks.Lock{Path: "d/a"}, adds("d/ab"), false, false},
		"a shared lock":               {locks.Lock{Path: "d/a", Shared: true}, writes("d/a"), true, false},
		"a file of the folder":        {locks.Lock{Path: "d"}, writes("d/a"), false, false},
		"an entry for the folder":     {locks.Lock{Path: "d"}, adds("d/a"), true, false},
		"an entry of the folder":      {locks.Lock{Path: "d"}, removes("d/a"), true, false},
		"an entry below":              {locks.Lock{Path: "d"}, adds("d/e/a"), false, false},
		"deep: a file":                {locks.Lock{Path: "d", Deep: true}, writes("d/e/a"), true, false},
		"deep: an entry":              {locks.Lock{Path: "d", Deep: true}, adds("d/e/a"), true, false},
		"deep: another folder":        {locks.Lock{Path: "d", Deep: true}, adds("de"), false, false},
		"the root":                    {locks.Lock{}, adds("d"), true, false},
		"the root itself":             {locks.Lock{}, writes(""), true, false},
		"removal of a folder above":   {locks.Lock{Path: "d/e/a"}, removes("d"), true, true},
		"removal of the file":         {locks.Lock{Path: "d/a"}, removes("d/a"), true, true},
		"replacement of the file":     {locks.Lock{Path: "d/a"}, replaces("d/a"), true, false},
		"replacement of the folder":   {locks.Lock{Path: "d/a"}, replaces("d"), true, true},
		"removal beside the file":     {locks.Lock{Path: "d/a"}, removes("d/ab"), false, false},
		"removal of its folder's kin": {locks.Lock{Path: "d/a"}, removes("da"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			store := &memory{}
			table := load(t, store)
			test.lock.Creator = "usr_1"
			held, err := table.Acquire(test.lock, locks.MaxTimeout)
			if err != nil {
				t.Fatal(err)
			}
			submits := func(token string) bool { return token == held.Token }
			for who, err := range map[string]error{
				"no token":       table.Check("usr_1", nil, test.effect),
				"another token":  table.Check("usr_1", func(string) bool { return false }, test.effect),
				"another's lock": table.Check("usr_2", submits, test.effect),
			} {
				conflict, is := errors.AsType[*locks.Conflict](err)
				if is != test.isRefused || is && (conflict.Code != locks.Locked || conflict.Path != test.lock.Path) {
					t.Errorf("%s: %v", who, err)
				}
			}
			if err := table.Check("usr_1", submits, test.effect); err != nil {
				t.Errorf("the lock's creator with the token: %v", err)
			}
			if err := table.End("usr_2", submits, test.effect); err != nil {
				t.Fatal(err)
			}
			for _, table := range []*locks.Table{table, load(t, store)} {
				if isOver := len(table.Covering(test.lock.Path)) == 0; isOver != test.isOver {
					t.Errorf("after the change the lock is over: %t", isOver)
				}
			}
		})
	}
}

// TestLocksWithoutResource has locks on paths that a process has removed. They forbid nothing, and do not lock what is created there.
func TestLocksWithoutResource(t *testing.T) {
	present := map[string]bool{"": true, "d": true, "d/kept": true, "d/gone": true, "gone": true}
	table := loadWith(t, &memory{}, func(path string) bool { return present[path] })
	acquire := func(path string, deep bool) *locks.Lock {
		t.Helper()
		held, err := table.Acquire(locks.Lock{Path: path, Deep: deep, Creator: "usr_1"}, locks.MaxTimeout)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	kept, mine := acquire("d/kept", false), acquire("d/gone", false)
	acquire("gone", true)
	delete(present, "d/gone")
	delete(present, "gone")
	adds := func(path string) locks.Effect { return locks.Effect{Path: path, ChangesParent: true} }
	if err := table.Check("usr_2", nil, adds("d/gone"), adds("gone"), adds("gone/below")); err != nil {
		t.Errorf("a lock without a resource forbids a change: %v", err)
	}
	if err := table.Check("usr_2", nil, locks.Effect{Path: "d", IsDeep: true, Removes: true}); !errors.As(err, new(*locks.Conflict)) {
		t.Errorf("the removal of the folder of a locked file: %v", err)
	}
	if err := table.CheckFree(&locks.Lock{Path: "gone"}); err != nil {
		t.Errorf("a lock without a resource excludes a lock: %v", err)
	}
	submits := func(token string) bool { return token == mine.Token }
	if err := table.End("usr_1", submits, adds("d/gone")); err != nil {
		t.Fatal(err)
	}
	present["d/gone"] = true
	if held := table.Covering("d/gone"); len(held) != 1 {
		t.Errorf("the caller that has created the file again, and submits its token, has lost its lock")
	}
	if err := table.End("usr_2", submits, adds("d/gone"), adds("gone")); err != nil {
		t.Fatal(err)
	}
	present["gone"] = true
	for path, want := range map[string]int{"d/gone": 0, "gone": 0, "gone/below": 0, "d/kept": 1} {
		if held := table.Covering(path); len(held) != want {
			t.Errorf("%d locks cover %s, want %d", len(held), path, want)
		}
	}
	delete(present, "d/kept")
	replaced := acquire("d/kept", false)
	present["d/kept"] = true
	if held := table.Covering("d/kept"); len(held) != 1 || held[0].Token != replaced.Token || replaced.Token == kept.Token {
		t.Errorf("the locks are %v", held)
	}
}
