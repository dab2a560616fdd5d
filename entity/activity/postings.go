package activity

import (
	"encoding/binary"
	"errors"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// Posting is one row in an index that finds rows: ByPath, Below and Restores.
type Posting struct {
	Seq  uint64
	Kind activityv1.Kind
}

// MaxRun is the number of postings in one entry: as many as a page that needs a few of them can afford to decode.
const MaxRun = 256

// An entry of such an index is a run of postings. Its order is the seq of the first; its data are the kind of the first
// and then, for each further one, the distance from the seq before as a uvarint, and its kind. An entry with one posting
// is thus its kind alone, which is the form of every entry that was written before there were runs.
//
// The runs of one value do not overlap: each index write covers the rows after those of the last one.

var errPostings = errors.New("activity: an index entry cannot be parsed")

// AppendPostings appends the postings of an entry, in the order of seq.
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

// run is the last run at one value of an index within an index write.
type run struct {
	// entry is the position of its entry among the decision's.
	entry, length int
	last          uint64
}

// post adds a row to an index at a value, to the run r or to a new one, and returns by about how many bytes the entries
// have grown. A row that is there already is added once. Rows come in the order of seq.
func (d *draft) post(r *run, index, value string, row Posting) int {
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
