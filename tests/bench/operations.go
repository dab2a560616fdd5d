package bench

import (
	"fmt"
	"math/rand/v2"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// Operations generates the operations of people and their tools on a drive.
type Operations struct {
	random *rand.Rand
	// files is the number of files, three folders deep.
	files int
	// mixed adds reads, and changes other than writes.
	mixed bool
}

const (
	// A tenth of the operations are on the hot files, evenly, regardless of the number of files; all authors use them.
	hot = 10
	// authors is the number of authors. Seven of eight operations on another file are by the author that the file belongs to.
	authors = 8
)

// NewOperations returns a generator of writes alone or of mixed operations.
func NewOperations(seed uint64, files int, mixed bool) *Operations {
	return &Operations{random: rand.New(rand.NewPCG(seed, 1)), files: files, mixed: mixed}
}

// HotPath returns the path of a hot file, in HotFolder.
func HotPath(i int) string { return fmt.Sprintf("%s/report-%d.md", HotFolder, i%hot) }

// HotFolder is the folder of the hot files.
const HotFolder = "projects/atlas"

func path(i int) string {
	return fmt.Sprintf("projects/team-%d/sprint-%d/notes-%d.md", i%50, i/50%200, i/10_000)
}

// Next returns the next operation.
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

// Take returns the next n operations.
func (o *Operations) Take(n int) []*activityv1.Operation {
	taken := make([]*activityv1.Operation, n)
	for i := range taken {
		taken[i] = o.Next()
	}
	return taken
}
