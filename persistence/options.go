package persistence

import (
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options say where a journal lies and what it may use. Only Dir is needed.
type Options struct {
	// Dir is the data directory; it is made where there is none.
	Dir string
	// Partitions is fixed when the directory is made: 12 then by default. 0 for one that exists: whatever it has.
	Partitions int
	// Marks is the file that holds the journal's identity and high-water marks, in a folder that exists. It is best kept
	// outside Dir, so that it survives Dir. The default is a file of Dir.
	Marks string
	// FS defaults to the machine's.
	FS     vfs.FS
	Logger *slog.Logger
	// CacheBytes is the memory for Pebble's blocks and memtables: 256 MiB by default, at least 4 MiB.
	CacheBytes int64
	// MemtableBytes is 32 MiB by default, and never more than a quarter of the cache, out of which it is reserved.
	MemtableBytes int64
	// MinFreeBytes is the free space below which appends are refused: 64 MiB by default.
	MinFreeBytes uint64
	// QueueProposals and QueueBytes bound what waits to be written: 65536 and 64 MiB by default.
	QueueProposals int
	QueueBytes     int
	// OpenFiles is about how many files Pebble has open: 1000 by default, at least MinOpenFiles. Tables that are being read
	// may be open beyond it.
	OpenFiles int
	// CachedHeads is how many streams' versions are kept in memory: 65536 by default.
	CachedHeads int
}

// MinOpenFiles is the least that Pebble has open at a time: 64 tables, and its logs, manifest and directories.
const MinOpenFiles = 74

const (
	minCache     = 4 << 20
	defaultCache = 256 << 20
	// A kill leaves as much log to replay as memtablesWaiting memtables hold.
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
	return o
}

func positiveOr[N int | uint64](n, otherwise N) N {
	if n <= 0 {
		return otherwise
	}
	return n
}

func (o Options) pebble(fs vfs.FS, b *backgroundErrors) *pebble.Options {
	p := &pebble.Options{
		FS:                          fs,
		Comparer:                    comparer,
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
	// A replay reads long runs of rows, for which fast decompression is worth more than a smaller disk.
	p.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionFastest })
	// Split would make Pebble keep most rows of a stream apart from their keys, though walks read both.
	p.Experimental.EnableValueBlocks = func() bool { return false }
	for i := range p.Levels {
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBitsPerKey)
		p.Levels[i].BlockSize = blockSize
		p.Levels[i].IndexBlockSize = indexBlockSize
	}
	return p
}
