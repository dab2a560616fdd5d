package activity

import (
	"encoding/binary"
	"errors"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// Posting is a row in one of the indexes ByPath, Below and Restores.
type Posting struct {
	Seq  uint64
	Kind activityv1.Kind
}

// MaxRun is the greatest number of postings in one entry. It limits the cost of decoding an entry for a page that needs
// only a few of them.
const MaxRun = 256

// An entry of these indexes is a run of postings. Its order is the seq of the first posting. Its data is the kind of the
// first posting, followed for each further posting by its distance from the previous seq, as a uvarint, and its kind. So
// an entry with one posting has its kind alone, which is also the form of all entries from before there were runs.
//
// The runs of one index value do not overlap, because each index write has the rows after the rows of the previous index write.

var errPostings = errors.New("activity: decode an index entry: invalid run of rows")

// AppendPostings decodes an entry and appends its postings in the order of seq. It fails if data is not a run.
func AppendPostings(dst []Posting, order uint64, data []byte) ([]Posting, error) {
	if len(data) == 0 {
		return dst, errPostings
	}
	seq := order
	dst = append(dst, Posting{seq, activityv1.Kind(data[0])})
	for data = data[1:]; len(data) > 0; {
		distance, n := binary.Uvarint(data)
		if n <= 0 || n == len(data) || distance == 0 || seq+distance < seq {
			return dst, errPostings
		}
		seq += distance
		dst = append(dst, Posting{seq, activityv1.Kind(data[n])})
		data = data[n+1:]
	}
	return dst, nil
}

// run is the last run of an index write under one value of an index; length is 0 if there is none yet.
type run struct {
	// entry is the position of the run in the Entries of the decision.
	entry int
	// length is the number of postings, and last the seq of the last one.
	length int
	last   uint64
}

// addPosting adds a row under a value of an index, to the run r or to a new one. It returns the approximate growth of the
// entries, in bytes. The caller adds rows in the order of seq; a row that is added twice in a row has no effect.
func (d *draft) addPosting(r *run, index, value string, row Posting) int {
	if r.length > 0 && r.last == row.Seq {
		return 0
	}
	if r.length == 0 || r.length == MaxRun {
		*r = run{entry: len(d.Entries), length: 1, last: row.Seq}
		data := kindData[row.Kind]
		d.Entries = append(d.Entries, Entry{Index: index, Value: value, Order: row.Seq, Data: data})
		return len(index) + len(value) + len(data) + 16
	}
	e := &d.Entries[r.entry]
	before := len(e.Data)
	e.Data = append(binary.AppendUvarint(e.Data, row.Seq-r.last), byte(row.Kind))
	r.length++
	r.last = row.Seq
	return len(e.Data) - before
}
