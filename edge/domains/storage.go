package domains

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/certificates"
	certificatesv1 "github.com/atelier-run/atelier/messages/certificates/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// files reads and writes the files of the store.
type files struct {
	asker  entity.Asker
	sealer cipher.AEAD
	clock  func() time.Time
	log    *slog.Logger
}

// ask sends a command to the store.
func (f *files) ask(ctx context.Context, m proto.Message) (proto.Message, error) {
	return entity.AskAsPlatform[proto.Message](ctx, f.asker, entity.KindCertificates, certificates.Identity, m)
}

// seal encrypts the content of a file. The nonce precedes the ciphertext.
func (f *files) seal(name string, content []byte) *certificatesv1.File {
	nonce := make([]byte, f.sealer.NonceSize(), f.sealer.NonceSize()+len(content)+f.sealer.Overhead())
	rand.Read(nonce)
	return &certificatesv1.File{
		Name: name, Sealed: f.sealer.Seal(nonce, nonce, content, []byte(name)), Size: int64(len(content)), NotAfter: notAfter(name, content),
	}
}

// newSealer returns the cipher of the files of the store.
func newSealer(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// open decrypts the content of a file.
func open(sealer cipher.AEAD, file *certificatesv1.File) ([]byte, error) {
	size := sealer.NonceSize()
	if len(file.GetSealed()) < size {
		return nil, errors.New("the file is too short")
	}
	return sealer.Open(nil, file.GetSealed()[:size], file.GetSealed()[size:], []byte(file.GetName()))
}

// Decrypt returns the content of a file of the store. key is Options.Key.
func Decrypt(key []byte, file *certificatesv1.File) ([]byte, error) {
	sealer, err := newSealer(key)
	if err != nil {
		return nil, err
	}
	return open(sealer, file)
}

// notAfter returns the end of the first certificate of a file with the suffix .crt, in milliseconds since the Unix epoch. It returns 0 for any
// other file.
func notAfter(name string, content []byte) int64 {
	if !strings.HasSuffix(name, ".crt") {
		return 0
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return 0
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return 0
	}
	return certificate.NotAfter.UnixMilli()
}

// load returns a file and its content. It returns fs.ErrNotExist if there is no such file or it cannot be decrypted.
func (f *files) load(ctx context.Context, name string) (*certificatesv1.File, []byte, error) {
	found, err := f.page(ctx, &wirev1.List{Name: certificates.FileList, Prefix: []byte(name), Limit: 1})
	if err != nil {
		return nil, nil, err
	}
	file := &certificatesv1.File{}
	if len(found.GetRows()) == 0 {
		return nil, nil, fs.ErrNotExist
	}
	if err := proto.Unmarshal(found.GetRows()[0], file); err != nil {
		return nil, nil, err
	}
	if file.GetName() != name { // a longer name with this beginning
		return nil, nil, fs.ErrNotExist
	}
	content, err := open(f.sealer, file)
	if err != nil {
		f.log.Error("a file of the store of certificates cannot be decrypted and counts as missing")
		return nil, nil, fs.ErrNotExist
	}
	return file, content, nil
}

func (f *files) page(ctx context.Context, request *wirev1.List) (*wirev1.Page, error) {
	return entity.ReplyAs[*wirev1.Page](f.ask(ctx, request))
}

// names returns the names of the files below a folder. If recursive is false, it returns the name of a subfolder in place of the files in it.
func (f *files) names(ctx context.Context, folder string, recursive bool) ([]string, error) {
	prefix := folder + "/"
	if folder == "" {
		prefix = ""
	}
	var all []string
	for after := ""; ; {
		limit := int32(100)
		if !recursive {
			limit = 1 // the next request passes over the rest of a subfolder
		}
		page, err := f.page(ctx, &wirev1.List{Name: certificates.FileList, Prefix: []byte(prefix), After: []byte(after), Limit: limit})
		if err != nil {
			return nil, err
		}
		for _, row := range page.GetRows() {
			file := &certificatesv1.File{}
			if err := proto.Unmarshal(row, file); err != nil {
				return nil, err
			}
			name := file.GetName()
			after = name
			if child, _, below := strings.Cut(name[len(prefix):], "/"); below && !recursive {
				name = prefix + child
				after = name + "/\x7f" // after all names in the subfolder, which are printable ASCII
			}
			all = append(all, name)
		}
		if len(page.GetRows()) == 0 || len(page.GetNext()) == 0 {
			return all, nil
		}
	}
}

// write stores files together.
func (f *files) write(ctx context.Context, fences []*certificatesv1.Fence, all ...*certificatesv1.File) error {
	_, err := f.ask(ctx, &certificatesv1.StoreFiles{Files: all, Fences: fences})
	return err
}

// remove removes a file, or all files below a folder.
func (f *files) remove(ctx context.Context, fences []*certificatesv1.Fence, name string) error {
	below, err := f.names(ctx, name, true)
	if err != nil {
		return err
	}
	for names := range slices.Chunk(append(below, name), certificates.MaxFiles) {
		if _, err := f.ask(ctx, &certificatesv1.RemoveFiles{Names: names, Fences: fences}); err != nil {
			return err
		}
	}
	return nil
}

// certificateFolder has certmagic's certificates.
const certificateFolder = "certificates/"

// A session is the store for one operation of certmagic. The locks that the session holds fence its changes.
//
// The files of certificates are staged while a lock is held, and are stored together when the lock is released. So a crash cannot
// separate a certificate from its key.
type session struct {
	*files
	locks  locks
	staged []*stagedFile
	// failed is the error of storing the staged files, which certmagic only logs.
	failed error
}

type stagedFile struct {
	name    string
	content []byte
}

var _ certmagic.Storage = (*session)(nil)

// begin returns a session. The caller ends it.
func (f *files) begin() *session { return &session{files: f} }

// end releases the locks that the session still holds. Staged files are dropped.
func (s *session) end(ctx context.Context) { s.locks.releaseAll(ctx, s.files) }

// Lock acquires a lock, and renews its lease until Unlock. It returns the error of ctx, or of the store.
func (s *session) Lock(ctx context.Context, name string) error {
	return s.locks.acquire(ctx, s.files, name)
}

// Unlock stores the staged files and releases the lock. It returns the error of either; finish returns it again.
func (s *session) Unlock(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if len(s.staged) > 0 {
		var all []*certificatesv1.File
		for _, f := range s.staged {
			all = append(all, s.seal(f.name, f.content))
		}
		s.staged = nil
		s.failed = s.write(ctx, s.locks.fences(), all...)
	}
	if err := s.locks.release(ctx, s.files, name); err != nil {
		return err
	}
	return s.failed
}

// finish returns the error of storing the staged files.
func (s *session) finish() error { return s.failed }

func (s *session) Store(ctx context.Context, key string, value []byte) error {
	if strings.HasPrefix(key, certificateFolder) && len(s.locks.fences()) > 0 {
		s.unstage(key)
		s.staged = append(s.staged, &stagedFile{key, slices.Clone(value)})
		return nil
	}
	return s.write(ctx, s.locks.fences(), s.seal(key, value))
}

func (s *session) Load(ctx context.Context, key string) ([]byte, error) {
	if i := s.indexOfStaged(key); i >= 0 {
		return slices.Clone(s.staged[i].content), nil
	}
	_, content, err := s.load(ctx, key)
	return content, err
}

func (s *session) Delete(ctx context.Context, key string) error {
	s.unstage(key)
	return s.remove(ctx, s.locks.fences(), key)
}

// Exists reports whether a readable file or a folder has the name.
func (s *session) Exists(ctx context.Context, key string) bool {
	_, err := s.Stat(ctx, key)
	return err == nil
}

func (s *session) List(ctx context.Context, path string, recursive bool) ([]string, error) {
	all, err := s.names(ctx, strings.Trim(path, "/"), recursive)
	if err == nil && len(all) == 0 {
		return nil, fs.ErrNotExist
	}
	return all, err
}

func (s *session) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	if i := s.indexOfStaged(key); i >= 0 {
		return certmagic.KeyInfo{Key: key, Modified: s.clock(), Size: int64(len(s.staged[i].content)), IsTerminal: true}, nil
	}
	file, _, err := s.load(ctx, key)
	if err == nil {
		return certmagic.KeyInfo{Key: key, Modified: time.UnixMilli(file.GetModifiedAt()), Size: file.GetSize(), IsTerminal: true}, nil
	}
	below, listing := s.page(ctx, &wirev1.List{Name: certificates.FileList, Prefix: []byte(key + "/"), Limit: 1})
	if listing == nil && len(below.GetRows()) > 0 {
		return certmagic.KeyInfo{Key: key}, nil
	}
	return certmagic.KeyInfo{}, err
}

func (s *session) indexOfStaged(key string) int {
	return slices.IndexFunc(s.staged, func(f *stagedFile) bool { return f.name == key })
}

func (s *session) unstage(key string) {
	s.staged = slices.DeleteFunc(s.staged, func(f *stagedFile) bool { return f.name == key })
}
