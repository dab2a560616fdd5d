package runner

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// Limits of an output.
const (
	// maxBlock is the maximum length of the text of a row, in bytes; a longer text becomes several rows.
	maxBlock = 32 << 10
	// maxWaiting is the maximum size, in bytes, and maxWaitingRows the maximum number of the rows that wait to be recorded. Beyond them, the agent
	// is not read, so that it has to wait.
	maxWaiting     = 1 << 20
	maxWaitingRows = 512
	// maxBatch and maxBatchRows bound one RecordRows.
	maxBatch     = 256 << 10
	maxBatchRows = 64
	// maxDeltas bounds the text that waits to be published before its row is recorded.
	maxDeltas = 64 << 10
	// deltaPause is the least time between two deltas of a text.
	deltaPause = 50 * time.Millisecond
	// reportPause is the least time between two reports without rows.
	reportPause = time.Second
)

// An output transfers the output of an agent to its session: it sends text that is being written at once, as deltas, and rows in
// batches. Its producer is the goroutine that reads from the agent, which waits while the output is full. A run is attached to the
// output while a turn runs. Output that the agent writes between turns waits for the next run.
type output struct {
	asker    entity.Asker
	identity string
	metrics  *metrics

	mu    sync.Mutex
	space sync.Cond
	// wake has a value when the sender has something to do.
	wake   chan struct{}
	closed bool

	rows    []*sessionv1.Row
	waiting int
	// block is the text that is being written.
	block        []byte
	blockThought bool
	inputSeq     uint64
	deltas       []*sessionv1.PublishDelta
	deltaBytes   int
	// ended counts the deltas of blocks that have ended, which are published before their rows.
	ended int
	// report has the fields that the next batch reports in addition to its rows; nil: no fields. isUrgent is set if the report must not wait for
	// rows.
	report   *sessionv1.RecordRows
	isUrgent bool
	sending  bool
	// added is the number of rows so far. takenRows and takenBatches are the numbers of rows and batches that were taken to be recorded.
	added, takenRows, takenBatches uint64
	flushes                        []flush
}

// A flush waits until the first rows and batches of an output are recorded.
type flush struct {
	rows, batches uint64
	done          chan struct{}
}

func newOutput(asker entity.Asker, identity string, m *metrics) *output {
	o := &output{asker: asker, identity: identity, metrics: m, wake: make(chan struct{}, 1)}
	o.space.L = &o.mu
	return o
}

// A feed is the run that is attached to an output.
type feed struct {
	o      *output
	turnID uint64
	runID  string
	cancel context.CancelFunc
	ended  chan struct{}
	// refused is closed when the session refuses a report: the turn has ended without the run, or the workspace has no room in the journal.
	// refusal is the error; it is set before refused is closed.
	refused chan struct{}
	refusal error
	batch   uint64
	// lastDelta and lastReport are the times of the last delta and batch.
	lastDelta, lastReport time.Time
}

// attach begins to send the output as the output of a run. inputSeq is the seq of the last input that the agent has.
func (o *output) attach(ctx context.Context, turnID uint64, runID string, inputSeq uint64) *feed {
	ctx, cancel := context.WithCancel(ctx)
	f := &feed{o: o, turnID: turnID, runID: runID, cancel: cancel, ended: make(chan struct{}), refused: make(chan struct{})}
	o.mu.Lock()
	o.inputSeq = inputSeq
	for _, d := range o.deltas[o.ended:] {
		d.InputSeq = inputSeq // the deltas have the same inputSeq as the row of their text, which began after the end of the last turn
	}
	o.mu.Unlock()
	o.signal()
	go f.send(ctx)
	return f
}

// detach stops sending. A batch that is on its way has closeTimeout to arrive. The rows that were not taken wait for the next run.
func (f *feed) detach() {
	f.cancel()
	<-f.ended
}

func (o *output) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// close makes waiting producers return. The output drops the rows that producers add later.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.space.Broadcast()
}

// reserve waits for space and reports whether the output is open. The caller holds mu.
func (o *output) reserve() bool {
	for !o.closed && (o.waiting+len(o.block) >= maxWaiting || len(o.rows) >= maxWaitingRows) {
		o.space.Wait()
	}
	return !o.closed
}

// write adds text that the agent has written.
func (o *output) write(text string, isThought bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for text != "" {
		if !o.reserve() {
			return
		}
		if len(o.block) > 0 && o.blockThought != isThought {
			o.endBlock()
		}
		o.blockThought = isThought
		part := cut(text, max(maxBlock-len(o.block), utf8.UTFMax))
		text = text[len(part):]
		o.block = append(o.block, part...)
		o.addDelta(part, isThought)
		if len(o.block) >= maxBlock-utf8.UTFMax {
			o.endBlock()
		}
		o.signal()
	}
}

// cut returns the longest prefix of a text of at most n bytes that ends between two characters; n is at least utf8.UTFMax.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

func (o *output) addDelta(text string, isThought bool) {
	if o.deltaBytes+len(text) > maxDeltas {
		// The sender is late. The rows have the text, too.
		o.deltas, o.deltaBytes, o.ended = nil, 0, 0
	}
	o.deltaBytes += len(text)
	if n := len(o.deltas); n > o.ended && o.deltas[n-1].GetThought() == isThought {
		o.deltas[n-1].Text += text
		return
	}
	o.deltas = append(o.deltas, &sessionv1.PublishDelta{InputSeq: o.inputSeq, Text: text, Thought: isThought})
}

// endBlock makes a row of the text that was being written. The caller holds mu.
func (o *output) endBlock() {
	if len(o.block) == 0 {
		return
	}
	text := &sessionv1.Text{Text: string(o.block), InputSeq: o.inputSeq}
	row := &sessionv1.Row{Text: text}
	if o.blockThought {
		row = &sessionv1.Row{Thought: text}
	}
	o.block, o.ended = o.block[:0], len(o.deltas)
	o.enqueue(row)
}

func (o *output) enqueue(row *sessionv1.Row) {
	o.rows = append(o.rows, row)
	o.added++
	o.waiting += proto.Size(row)
}

// add adds a row. It first ends the row of the text that is being written.
func (o *output) add(row *sessionv1.Row) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.reserve() {
		return
	}
	o.endBlock()
	o.enqueue(row)
	o.signal()
}

// addLast adds a row without waiting, also after close. The caller bounds the number of such rows.
func (o *output) addLast(row *sessionv1.Row) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endBlock()
	o.enqueue(row)
	o.signal()
}

// set changes the report of the next batch. It never waits.
func (o *output) set(isUrgent bool, change func(*sessionv1.RecordRows)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.report == nil {
		o.report = &sessionv1.RecordRows{}
	}
	change(o.report)
	o.isUrgent = o.isUrgent || isUrgent
	o.signal()
}

// join reports inputs that the agent has taken. The output from now on answers these inputs.
func (o *output) join(seqs ...uint64) {
	o.mu.Lock()
	o.endBlock()
	o.inputSeq = max(o.inputSeq, slices.Max(seqs))
	o.mu.Unlock()
	o.set(true, func(r *sessionv1.RecordRows) { r.Joined = append(r.Joined, seqs...) })
}

// flush ends the text that is being written, and waits until all output so far is recorded. It does not wait for output that the agent writes
// meanwhile. It returns false if ctx has ended before, or the session has refused a report.
func (f *feed) flush(ctx context.Context) bool {
	o := f.o
	o.mu.Lock()
	o.endBlock()
	if len(o.rows) == 0 && o.report == nil && !o.sending {
		o.mu.Unlock()
		return true
	}
	waits := flush{rows: o.added, batches: o.takenBatches, done: make(chan struct{})}
	if o.report != nil {
		o.isUrgent = true
		waits.batches++
	}
	o.flushes = append(o.flushes, waits)
	o.mu.Unlock()
	o.signal()
	select {
	case <-waits.done:
		return true
	case <-f.refused:
	case <-f.ended:
	case <-ctx.Done():
	}
	return false
}

// take returns the deltas and the batch that are due now; batch is nil if no batch is due. pause is the time until the next delta or batch is
// due; 0 if no output waits.
func (f *feed) take(now time.Time) (deltas []*sessionv1.PublishDelta, batch *sessionv1.RecordRows, pause time.Duration) {
	o := f.o
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endFlushes()
	isDue := len(o.rows) > 0 || o.report != nil && (o.isUrgent || now.Sub(f.lastReport) >= reportPause)
	switch {
	case isDue:
		if deltas = o.deltas[:o.ended]; len(deltas) > 4 || !beginsWithText(o.rows) {
			// The rows of these texts follow at once. A delta must not come before the row of a tool that ended before the text of the delta.
			deltas = nil
		}
		o.deltas, o.ended = slices.Clone(o.deltas[o.ended:]), 0
		o.countDeltas()
		batch = o.takeBatch()
	case len(o.deltas) > 0 && now.Sub(f.lastDelta) >= deltaPause:
		deltas, o.deltas, o.deltaBytes, o.ended = o.deltas, nil, 0, 0
	case len(o.deltas) > 0:
		pause = deltaPause - now.Sub(f.lastDelta)
	case o.report != nil:
		pause = reportPause - now.Sub(f.lastReport)
	}
	o.sending = batch != nil
	return deltas, batch, pause
}

// endFlushes ends each flush if all its rows and batches were taken. All taken rows and batches are recorded. The caller holds mu.
func (o *output) endFlushes() {
	o.flushes = slices.DeleteFunc(o.flushes, func(f flush) bool {
		isDone := o.takenRows >= f.rows && o.takenBatches >= f.batches
		if isDone {
			close(f.done)
		}
		return isDone
	})
}

func beginsWithText(rows []*sessionv1.Row) bool {
	return len(rows) > 0 && (rows[0].GetText() != nil || rows[0].GetThought() != nil)
}

func (o *output) countDeltas() {
	o.deltaBytes = 0
	for _, d := range o.deltas {
		o.deltaBytes += len(d.GetText())
	}
}

// takeBatch returns the next batch. The caller holds mu.
func (o *output) takeBatch() *sessionv1.RecordRows {
	batch := o.report
	if batch == nil {
		batch = &sessionv1.RecordRows{}
	}
	o.report, o.isUrgent = nil, false
	n, size := 0, 0
	for n < len(o.rows) && n < maxBatchRows {
		length := proto.Size(o.rows[n])
		if n > 0 && size+length > maxBatch {
			break
		}
		n, size = n+1, size+length
	}
	o.takenRows, o.takenBatches = o.takenRows+uint64(n), o.takenBatches+1
	batch.Rows = slices.Clone(o.rows[:n])
	o.rows = slices.Delete(o.rows, 0, n)
	o.waiting -= size
	o.space.Broadcast()
	return batch
}

// send sends the output until the feed is detached.
func (f *feed) send(ctx context.Context) {
	defer close(f.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.o.wake:
		case <-timer.C:
		}
		for ctx.Err() == nil { // after the end of ctx, a batch that is taken could not be sent
			deltas, batch, pause := f.take(time.Now())
			for _, d := range deltas {
				f.lastDelta = time.Now()
				f.publish(ctx, d)
			}
			if batch != nil && !f.record(ctx, batch) {
				return
			}
			if batch == nil && len(deltas) == 0 {
				if pause > 0 {
					timer.Reset(pause)
				}
				break
			}
		}
	}
}

// publish publishes a delta. A failure loses no text, because the row follows.
func (f *feed) publish(ctx context.Context, d *sessionv1.PublishDelta) {
	d.Text = strings.ToValidUTF8(d.GetText(), "\uFFFD")
	if err := tell(ctx, f.o.asker, f.o.identity, d); err == nil {
		f.o.metrics.deltas.Inc()
	}
}

// record sends a batch until the session has answered it. It returns false if the session has refused the batch, or if closeTimeout has passed
// since the end of ctx; the rows of the batch may then be lost.
func (f *feed) record(ctx context.Context, batch *sessionv1.RecordRows) bool {
	detached := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(detached))
	defer cancel()
	defer context.AfterFunc(detached, func() { time.AfterFunc(closeTimeout, cancel) })()
	f.batch++
	batch.TurnId, batch.RunId, batch.Batch = f.turnID, f.runID, f.batch
	err := entity.AskUntilAnswered(ctx, func() error { return tell(ctx, f.o.asker, f.o.identity, batch) })
	f.lastReport = time.Now()
	if err != nil && entity.IsRefusal(err) {
		f.refusal = err
		close(f.refused)
		return false
	}
	return err == nil
}

// ask sends a message to a session as the platform.
func ask[Reply proto.Message](ctx context.Context, a entity.Asker, identity string, m proto.Message) (Reply, error) {
	return entity.AskAsPlatform[Reply](ctx, a, entity.KindSession, identity, m)
}

// tell is ask without the reply.
func tell(ctx context.Context, a entity.Asker, identity string, m proto.Message) error {
	_, err := a.Ask(ctx, entity.Command{Kind: entity.KindSession, Identity: identity, Principal: entity.Platform(), Message: m})
	return err
}
