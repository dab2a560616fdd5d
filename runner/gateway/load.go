package gateway

import "sync"

// Bounds of the requests to models that are being served, by the length of their bodies, which are in memory until the replies end.
const (
	maxRunLoad = 128 << 20
	maxLoad    = 1 << 30
	// leastLoad is the least load of a request. It bounds the number of requests.
	leastLoad = 1 << 20
)

// load counts the requests that are being served. Its zero value has none.
type load struct {
	mu    sync.Mutex
	total int64
	runs  map[Run]int64
}

// reserve admits a request of a run with a body of a length; -1: the length is not known. If it reports true, the caller calls
// release when the request has ended.
func (l *load) reserve(run Run, length int64) (release func(), ok bool) {
	if length < 0 {
		length = MaxBody
	}
	length = min(max(length, leastLoad), MaxBody)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total+length > maxLoad || l.runs[run]+length > maxRunLoad {
		return nil, false
	}
	if l.runs == nil {
		l.runs = map[Run]int64{}
	}
	l.total += length
	l.runs[run] += length
	return func() { l.release(run, length) }, true
}

func (l *load) release(run Run, length int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total -= length
	if l.runs[run] -= length; l.runs[run] == 0 {
		delete(l.runs, run)
	}
}
