package bucket

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // buckets with object lock require Content-MD5
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

// The limits of a multipart upload, from "Amazon S3 multipart upload limits" in the S3 User Guide: every part except the last
// one has 5 MiB to 5 GiB, and an upload has at most 10,000 parts.
const (
	// maxPartSize is the size of the largest part, in bytes.
	maxPartSize = 5 << 30
	// maxParts is the largest number of parts of an upload.
	maxParts = 10_000
)

// schedule determines the sizes of the parts of an upload of unknown length. Parts grow with the number of bytes written: small
// uploads need little memory, and large uploads do not reach the limit on the number of parts.
type schedule struct {
	// first is the size of the first parts in bytes. Larger parts are stored in files instead of memory.
	first int64
	// growth is the number of parts of the current size that would hold all bytes written. Once first * growth bytes are
	// written, each part is larger than the previous one by a factor of 1 + 1/growth.
	growth int64
	// unit divides the size of every part that is larger than first, in bytes.
	unit int64
	// parts is the largest number of parts of an upload.
	parts int
}

// defaultSchedule has parts of 8 MiB for the first 10 GiB. It reaches 5 TiB, the size of the largest object in S3, with parts
// of 4 GiB and fewer than 10,000 parts.
var defaultSchedule = schedule{first: 8 << 20, growth: 1300, unit: 1 << 20, parts: maxParts}

// next returns the size in bytes of the part that follows the first written bytes.
func (s schedule) next(written int64) int64 {
	grown := (written/s.growth + s.unit - 1) / s.unit * s.unit
	return min(max(s.first, grown), maxPartSize)
}

// concurrentParts is the number of parts of an object that are sent at the same time, while the next part is filled.
const concurrentParts = 3

// Put implements Bucket. It begins a multipart upload before it calls write, so that an unusable bucket is detected before the
// content is produced. Put sends up to concurrentParts parts while write fills the next part. A part of schedule.first bytes
// is stored in memory, a larger part in an unnamed file in the spool: an upload stores at most concurrentParts+1 parts at a
// time.
//
// Put aborts an upload that fails. If a crash interrupts Put, the next Put of the same name aborts the upload, provided that
// the server lists it.
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
			err = s.requestError("cannot complete the upload of "+name, err)
		}
	}
	if err != nil {
		s.abort(ctx, name, id)
	}
	return err
}

// abort aborts an upload, even if ctx has ended. It ignores errors.
func (s *S3) abort(ctx context.Context, name, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.beginTimeout)
	defer cancel()
	_ = s.core.AbortMultipartUpload(ctx, s.options.Bucket, name, id) // the next Put of this name aborts the upload
}

// abortOthers aborts all uploads of the object except the upload id. It ignores errors, because the credentials may not permit
// listing uploads.
func (s *S3) abortOthers(ctx context.Context, name, id string) {
	ctx, cancel := context.WithTimeout(ctx, s.beginTimeout)
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

// upload is a multipart upload in progress. One goroutine calls Write and then finish; each part is sent by its own goroutine.
type upload struct {
	s        *S3
	name, id string
	ctx      context.Context
	cancel   context.CancelCauseFunc

	// free holds the parts that are neither being filled nor being sent.
	free chan *part
	// filling is the part that Write fills, or nil.
	filling *part
	// written is the number of bytes written so far.
	written int64
	// number is the number of the part that was begun last, from 1.
	number int
	// sending counts the goroutines that send parts.
	sending sync.WaitGroup

	// mu protects sent.
	mu sync.Mutex
	// sent lists the parts that were sent, in any order.
	sent []minio.CompletePart
}

// newUpload returns the state of the upload id. The caller must call finish.
func newUpload(ctx context.Context, s *S3, name, id string) *upload {
	ctx, cancel := context.WithCancelCause(ctx)
	u := &upload{s: s, name: name, id: id, ctx: ctx, cancel: cancel, free: make(chan *part, concurrentParts+1)}
	for range concurrentParts + 1 {
		u.free <- &part{spool: s.spool, memoryLimit: s.schedule.first, sha256: sha256.New(), md5: md5.New()}
	}
	return u
}

// Write appends p to the object and sends each part that becomes full. It waits while concurrentParts parts are being sent. It
// fails if a part could not be stored or sent, or if the object would need too many parts.
func (u *upload) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if u.filling == nil {
			if err := u.beginPart(); err != nil {
				return n, err
			}
		}
		room := min(int64(len(p)-n), u.filling.size-u.filling.length)
		if err := u.filling.write(p[n : n+int(room)]); err != nil {
			return n, fmt.Errorf("cannot store part %d of the upload of %s: %w", u.number, u.name, err)
		}
		n, u.written = n+int(room), u.written+room
		if u.filling.length == u.filling.size {
			u.send()
		}
	}
	return n, nil
}

// beginPart waits for a free part and makes it the part to fill. It fails if the upload has the largest number of parts, or if
// the upload was cancelled.
func (u *upload) beginPart() error {
	if u.number == u.s.schedule.parts {
		return fmt.Errorf("the object %s is too large for S3: the limit of %d parts is reached after %d bytes", u.name, u.number, u.written)
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

// send starts to send the part that Write filled and returns without waiting. The first part that cannot be sent cancels the
// upload.
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
			u.cancel(u.s.requestError(fmt.Sprintf("cannot send part %d of %s", number, u.name), err))
		}
		u.mu.Lock()
		u.sent = append(u.sent, minio.CompletePart{PartNumber: number, ETag: sent.ETag})
		u.mu.Unlock()
		u.free <- part
	})
}

// finish waits until all parts are sent, releases their memory and files, and returns the parts in order. If complete is true,
// it sends the last part first and returns the error that cancelled the upload. Otherwise it cancels the parts being sent.
func (u *upload) finish(complete bool) ([]minio.CompletePart, error) {
	var err error
	if complete && u.number == 0 { // S3 requires at least one part, which may be empty
		err = u.beginPart()
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

// part stores bytes until they are sent, in memory if size is at most memoryLimit and otherwise in a file. Its methods are
// called by one goroutine at a time. A part is reused, and its size never decreases.
type part struct {
	// spool is the folder of the file.
	spool string
	// memoryLimit is the largest size of a part in memory, in bytes.
	memoryLimit int64
	// size is the capacity of the part and length the number of bytes written to it.
	size, length int64
	// sha256 is a part of the signature of the request. Buckets with object lock require md5.
	sha256, md5 hash.Hash
	// bytes is the content of a part in memory.
	bytes []byte
	// file has the content of a larger part. It has no name in the spool.
	file *os.File
}

// reset empties the part and sets its capacity to size bytes.
func (p *part) reset(size int64) {
	p.size, p.length, p.bytes = size, 0, p.bytes[:0]
	p.sha256.Reset()
	p.md5.Reset()
}

// write appends b, which must fit. It fails if the file cannot be created or written.
func (p *part) write(b []byte) (err error) {
	p.sha256.Write(b)
	p.md5.Write(b)
	p.length += int64(len(b))
	if p.size <= p.memoryLimit {
		p.bytes = append(p.bytes, b...)
		return nil
	}
	p.bytes = nil // release the memory: no later size is within memoryLimit
	if p.file == nil {
		if p.file, err = createUnlinked(p.spool); err != nil {
			return err
		}
	}
	_, err = p.file.WriteAt(b, p.length-int64(len(b)))
	return err
}

// reader returns a reader of the whole part. Its content must not change until the request, with all its retries, has ended.
func (p *part) reader() io.Reader {
	if p.size <= p.memoryLimit {
		return bytes.NewReader(p.bytes)
	}
	return io.NewSectionReader(p.file, 0, p.length)
}

// close closes the file, if the part has one.
func (p *part) close() {
	if p.file != nil {
		_ = p.file.Close() // the file has no name, so closing it deletes it
	}
}
