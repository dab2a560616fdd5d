package bucket

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // servers ask for it
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/minio/minio-go/v7"
)

// S3's limits of a multipart upload, from "Amazon S3 multipart upload limits": parts have 5 MiB, but for the last one, to
// 5 GiB, and an upload has at most 10,000.
const (
	maxPart  = 5 << 30
	maxParts = 10_000
)

// schedule has the sizes of the parts of an upload whose length is not known when it begins. Parts grow with what is
// written: small uploads need little room, and large ones do not run out of parts.
type schedule struct {
	// first is the size of the first parts, and of memory that a part may take, in bytes.
	first int64
	// growth is how many parts of the current size could hold what is written: from first * growth bytes on, each part
	// is larger than the one before by one part in growth.
	growth int64
	// unit is what the sizes of larger parts are multiples of.
	unit int64
	// parts is how many parts an upload has at most.
	parts int
}

// defaultSchedule begins to grow at 10 GiB and reaches 5 TiB, with parts of 4 GiB, before there are 10,000.
var defaultSchedule = schedule{first: 8 << 20, growth: 1300, unit: 1 << 20, parts: maxParts}

// next returns the size of the part that begins behind written bytes.
func (s schedule) next(written int64) int64 {
	grown := (written/s.growth + s.unit - 1) / s.unit * s.unit
	return min(max(s.first, grown), maxPart)
}

// uploads is how many parts of an object are sent at the same time, while the next one is written.
const uploads = 3

// Put is of Bucket. It begins a multipart upload before it calls write, so that a bucket that cannot be used is noticed at
// once. uploads parts of it are sent while the next one is filled. A part of schedule.first bytes lies in memory, a larger
// one in a file of the spool, which has no name: an upload takes at most uploads+1 times the size of a part in all.
//
// An upload that fails is aborted. One that a crash has cut off is aborted by the next Put of the same name, if the
// server lists it.
func (s *S3) Put(ctx context.Context, name string, write func(to io.Writer) error) error {
	var id string
	options := minio.PutObjectOptions{ContentType: "application/zstd", ServerSideEncryption: s.options.encryption}
	err := s.begin(ctx, func(ctx context.Context) (err error) {
		id, err = s.core.NewMultipartUpload(ctx, s.options.Bucket, name, options)
		return err
	})
	if err != nil {
		return err
	}
	s.abortOthers(ctx, name, id)
	u := newUpload(ctx, s, name, id)
	err = write(u)
	parts, failure := u.finish(err == nil)
	if err = cmp.Or(failure, err); err == nil {
		_, err = s.core.CompleteMultipartUpload(ctx, s.options.Bucket, name, id, parts, minio.PutObjectOptions{})
		if err != nil {
			err = s.failed("the upload cannot be completed", err)
		}
	}
	if err != nil {
		s.abort(ctx, name, id)
	}
	return err
}

// abort gives an upload up, also when its context has ended.
func (s *S3) abort(ctx context.Context, name, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.patience)
	defer cancel()
	_ = s.core.AbortMultipartUpload(ctx, s.options.Bucket, name, id) // the next Put tries again
}

// abortOthers gives up the other uploads of the same object. Servers need not allow the list.
func (s *S3) abortOthers(ctx context.Context, name, id string) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	found, err := s.core.ListMultipartUploads(ctx, s.options.Bucket, name, "", "", "", 100)
	if err != nil {
		return
	}
	for _, other := range found.Uploads {
		if other.Key == name && other.UploadID != id {
			_ = s.core.AbortMultipartUpload(ctx, s.options.Bucket, name, other.UploadID)
		}
	}
}

// upload is a multipart upload under way. Write is called by one goroutine.
type upload struct {
	s        *S3
	name, id string
	ctx      context.Context
	cancel   context.CancelCauseFunc

	// free has the parts that are not being sent.
	free    chan *part
	filling *part
	written int64
	number  int
	sending sync.WaitGroup

	mu   sync.Mutex
	sent []minio.CompletePart
}

func newUpload(ctx context.Context, s *S3, name, id string) *upload {
	ctx, cancel := context.WithCancelCause(ctx)
	u := &upload{s: s, name: name, id: id, ctx: ctx, cancel: cancel, free: make(chan *part, uploads+1)}
	for range uploads + 1 {
		u.free <- &part{spool: s.spool, memory: s.schedule.first, sha256: sha256.New(), md5: md5.New()}
	}
	return u
}

// Write adds bytes to the part that is being filled and sends the parts that become full.
func (u *upload) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if u.filling == nil {
			if err := u.take(); err != nil {
				return n, err
			}
		}
		room := min(int64(len(p)-n), u.filling.size-u.filling.length)
		if err := u.filling.write(p[n : n+int(room)]); err != nil {
			return n, fmt.Errorf("a part of an upload cannot be kept: %w", err)
		}
		n, u.written = n+int(room), u.written+room
		if u.filling.length == u.filling.size {
			u.send()
		}
	}
	return n, nil
}

// take begins the next part, as soon as one is free.
func (u *upload) take() error {
	if u.number == u.s.schedule.parts {
		return fmt.Errorf("the object is too large for S3: it has %d bytes in %d parts", u.written, u.number)
	}
	if u.ctx.Err() != nil {
		return context.Cause(u.ctx)
	}
	select {
	case u.filling = <-u.free:
		u.filling.reset(u.s.schedule.next(u.written))
		u.number++
		return nil
	case <-u.ctx.Done():
		return context.Cause(u.ctx)
	}
}

// send sends the part that has been filled. The first failure ends the upload.
func (u *upload) send() {
	part, number := u.filling, u.number
	u.filling = nil
	u.sending.Go(func() {
		sent, err := u.s.core.PutObjectPart(u.ctx, u.s.options.Bucket, u.name, u.id, number, part.reader(), part.length,
			minio.PutObjectPartOptions{
				Sha256Hex: hex.EncodeToString(part.sha256.Sum(nil)), DisableContentSha256: true,
				Md5Base64: base64.StdEncoding.EncodeToString(part.md5.Sum(nil)),
			})
		if err != nil {
			u.cancel(u.s.failed(fmt.Sprintf("part %d cannot be sent", number), err))
		}
		u.mu.Lock()
		u.sent = append(u.sent, minio.CompletePart{PartNumber: number, ETag: sent.ETag})
		u.mu.Unlock()
		u.free <- part
	})
}

// finish sends the last part, if the object is complete, waits for those under way, and returns all of them in order.
func (u *upload) finish(complete bool) ([]minio.CompletePart, error) {
	var err error
	if complete && u.number == 0 { // an empty object has one empty part
		err = u.take()
	}
	if !complete {
		u.cancel(context.Canceled)
	} else if u.filling != nil {
		u.send()
	}
	u.sending.Wait()
	if complete && err == nil {
		err = context.Cause(u.ctx)
	}
	u.cancel(nil)
	if u.filling != nil {
		u.filling.close()
	}
	for len(u.free) > 0 {
		(<-u.free).close()
	}
	slices.SortFunc(u.sent, func(a, b minio.CompletePart) int { return cmp.Compare(a.PartNumber, b.PartNumber) })
	return u.sent, err
}

// part holds bytes until they are sent: in memory, or in a file where there are more than memory.
type part struct {
	spool        string
	memory       int64
	size, length int64
	// sha256 is what the request is signed with. Buckets that lock objects want md5.
	sha256, md5 hash.Hash
	bytes       []byte
	file        *os.File
}

// reset empties the part, for size bytes.
func (p *part) reset(size int64) {
	p.size, p.length, p.bytes = size, 0, p.bytes[:0]
	p.sha256.Reset()
	p.md5.Reset()
}

func (p *part) write(b []byte) (err error) {
	p.sha256.Write(b)
	p.md5.Write(b)
	p.length += int64(len(b))
	if p.size <= p.memory {
		p.bytes = append(p.bytes, b...)
		return nil
	}
	p.bytes = nil // from here on, parts only grow
	if p.file == nil {
		if p.file, err = unlinked(p.spool); err != nil {
			return err
		}
	}
	_, err = p.file.WriteAt(b, p.length-int64(len(b)))
	return err
}

// reader reads the part from its beginning, as often as it is sent.
func (p *part) reader() io.Reader {
	if p.size <= p.memory {
		return bytes.NewReader(p.bytes)
	}
	return io.NewSectionReader(p.file, 0, p.length)
}

func (p *part) close() {
	if p.file != nil {
		_ = p.file.Close() // it has no name, and goes with this
	}
}
