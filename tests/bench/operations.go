package bench

import (
	"fmt"
	"math/rand/v2"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// Operations are what people and their tools do on a drive.
type Operations struct {
	random *rand.Rand
	// files is how many files there are, three folders deep.
	files int
	// reads and changes other than writes are among them.
	mixed bool
}

const (
	// hot files get a tenth of the operations, each a hundredth, however many files there are; everyone works on them.
	hot = 10
	// authors share the work; seven of eight operations on another file are by whose it is.
	authors = 8
)

// NewOperations of writes alone, or mixed.
func NewOperations(seed uint64, files int, mixed bool) *Operations {
	return &Operations{random: rand.New(rand.NewPCG(seed, 1)), files: files, mixed: mixed}
}

// HotPath is one of the paths that see many operations; its folder is HotFolder.
func HotPath(i int) string { return fmt.Sprintf("%s/report-%d.md", HotFolder, i%hot) }

// HotFolder holds the hot files.
const HotFolder = "projects/atlas"

func path(i int) string {
	return fmt.Sprintf("projects/team-%d/sprint-%d/notes-%d.md", i%50, i/50%200, i/10_000)
}

// Next is one operation.
func (o *Operations) Next() *activityv1.Operation {
	op := &activityv1.Operation{Kind: activityv1.Kind_KIND_WRITE, EntryKind: activityv1.EntryKind_ENTRY_KIND_FILE}
	who := o.random.IntN(authors)
	if o.random.IntN(10) == 0 {
		op.Path = HotPath(o.random.IntN(hot))
	} else {
		file := o.random.IntN(o.files)
		op.Path = path(file)
		if o.random.IntN(8) > 0 {
			who = file % authors
		}
	}
	op.Author = author(who)
	if !o.mixed {
		return op
	}
	switch n := o.random.IntN(20); {
	case n < 2:
		op.Kind = activityv1.Kind_KIND_CREATE
	case n < 3:
		op.Kind, op.FromPath = activityv1.Kind_KIND_RENAME, path(o.random.IntN(o.files))
	case n < 4:
		op.Kind = activityv1.Kind_KIND_DELETE
	case n < 6:
		op.Kind = activityv1.Kind_KIND_READ
	}
	return op
}

func author(i int) *activityv1.Author {
	id := fmt.Sprintf("usr_01jd0000000000000000000%03d", i)
	return &activityv1.Author{Actor: "user:" + id, UserId: id}
}

// Take is the next n operations.
func (o *Operations) Take(n int) []*activityv1.Operation {
	taken := make([]*activityv1.Operation, n)
	for i := range taken {
		taken[i] = o.Next()
	}
	return taken
}
