package persistence

import (
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options configure a journal. Only Dir is required.
type Options struct {
	// Dir is the data directory, which is created if it does not exist.
	Dir string
	// Partitions is the number of partitions of a directory that is created: 12 by default. For an existing directory, 0
	// accepts its number, and Open fails if any other value differs from it.
	Partitions int
	// Marks is the file with the journal's identity and high-water marks, in a folder that exists. It should be outside
	// Dir, so that it survives the loss of Dir. The default is a file in Dir.
	Marks string
	// FS defaults to the file system of the machine.
	FS     vfs.FS
	Logger *slog.Logger
	// CacheBytes is the memory for Pebble's blocks and memtables: 256 MiB by default, at least 4 MiB.
	CacheBytes int64
	// MemtableBytes is the size of a memtable: 32 MiB by default, and at most a quarter of the cache. The memtable is
	// reserved from the cache.
	MemtableBytes int64
	// MinFreeBytes is the free space below which proposals are refused: 64 MiB by default.
	MinFreeBytes uint64
	// MinFreeFiles is the number of free inodes of the disk below which proposals are refused. 0: no limit.
	MinFreeFiles uint64
	// QueueProposals and QueueBytes bound the queue of all partitions: 65,536 entries and 64 MiB by default.
	QueueProposals int
	QueueBytes     int
	// OpenFiles is about how many files Pebble keeps open: 1,000 by default, at least MinOpenFiles. Tables that are being
	// read may be open in addition.
	OpenFiles int
	// CachedHeads is the number of streams that have their versions in memory: 65,536 by default.
	CachedHeads int

	// recountRows bounds the rows between two commits of recount.
	recountRows int
	// mayLackFeed opens a journal although a feed ends before the sequence in the marks. Repair has found the events of the feed.
	mayLackFeed bool
}

// MinOpenFiles is the least number of files that Pebble keeps open: 64 tables, and its logs, manifest and directories.
const MinOpenFiles = 74

const (
	minCache     = 4 << 20
	defaultCache = 256 << 20
	// The log that is replayed after a kill is as long as memtablesWaiting memtables.
	defaultMemtable   = 32 << 20
	memtablesInCache  = 4
	memtablesWaiting  = 3
	maxProposalBytes  = 8 << 20
	bloomBitsPerKey   = 10
	blockSize         = 16 << 10
	indexBlockSize    = 64 << 10
	l0StopWrites      = 32
	defaultQueue      = 1 << 16
	defaultQueueBytes = 64 << 20
	defaultHeads      = 1 << 16
	defaultMinFree    = 64 << 20
)

// withDefaults returns the options with the defaults for everything that is not set.
func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Marks == "" {
		o.Marks = o.FS.PathJoin(o.Dir, marksName)
	}
	if o.CacheBytes <= 0 {
		o.CacheBytes = max(memtablesInCache*o.MemtableBytes, defaultCache)
	}
	o.CacheBytes = max(o.CacheBytes, minCache)
	if o.MemtableBytes <= 0 {
		o.MemtableBytes = defaultMemtable
	}
	o.MemtableBytes = min(o.MemtableBytes, o.CacheBytes/memtablesInCache)
	o.MinFreeBytes = positiveOr(o.MinFreeBytes, defaultMinFree)
	o.QueueProposals = positiveOr(o.QueueProposals, defaultQueue)
	o.QueueBytes = positiveOr(o.QueueBytes, defaultQueueBytes)
	o.CachedHeads = positiveOr(o.CachedHeads, defaultHeads)
	o.recountRows = positiveOr(o.recountRows, defaultRecountRows)
	return o
}

// positiveOr returns n if it is positive, and otherwise the default.
func positiveOr[N int | uint64](n, fallback N) N {
	if n <= 0 {
		return fallback
	}
	return n
}

// pebble returns the options of a store on fs. backgroundErrors receives its background events.
func (o Options) pebble(fs vfs.FS, b *backgroundErrors) *pebble.Options {
	p := &pebble.Options{
		FS:                          fs,
		Comparer:                    Comparer,
		MaxOpenFiles:                o.OpenFiles,
		CacheSize:                   o.CacheBytes,
		MemTableSize:                uint64(o.MemtableBytes),
		MemTableStopWritesThreshold: memtablesWaiting,
		L0StopWritesThreshold:       l0StopWrites,
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		WALMinSyncInterval:          func() time.Duration { return 0 },
		Logger:                      pebbleLogger{o.Logger, b.failure},
		EventListener:               b.listener(),
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
	}
	// A replay reads long runs of rows: fast decompression matters more than a small store.
	p.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionFastest })
	// Because Comparer.Split separates the version from a key, Pebble would store the values of most events of a stream in
	// other blocks than their keys, although iterations read both. EnableValueBlocks has no effect on this format version.
	p.Experimental.SpanPolicyFunc = func([]byte) (pebble.SpanPolicy, []byte, error) {
		return pebble.SpanPolicy{DisableValueSeparationBySuffix: true}, nil, nil
	}
	for i := range p.Levels {
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBitsPerKey)
		p.Levels[i].BlockSize = blockSize
		p.Levels[i].IndexBlockSize = indexBlockSize
	}
	return p
}
