package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// fileCheckInterval is the least time between two checks of the files of certificates for changes.
const fileCheckInterval = 10 * time.Second

// ErrNoCertificate is returned for a handshake for a name without a certificate.
var ErrNoCertificate = errors.New("no certificate for this name")

// A CertificateFile names the PEM files of a certificate, with its chain, and of its private key.
type CertificateFile struct{ Certificate, Key string }

// CertificateFiles are certificates in files, which are read again when they have changed. It is safe for concurrent use.
type CertificateFiles struct {
	files []CertificateFile
	now   func() time.Time
	log   *slog.Logger

	mu      sync.Mutex
	checked time.Time
	// read describes the files as they were last read, and certificates has their content, in the order of files.
	read         []fileVersion
	certificates []*tls.Certificate
}

// fileVersion has the attributes that change when a file is replaced or rewritten.
type fileVersion struct {
	certificate, key struct {
		modified time.Time
		size     int64
	}
}

// NewCertificateFiles reads the files. It returns an error if one cannot be read, or its key belongs to another certificate.
func NewCertificateFiles(files []CertificateFile, now func() time.Time, log *slog.Logger) (*CertificateFiles, error) {
	c := &CertificateFiles{
		files: files, now: now, log: log, checked: now(),
		read: make([]fileVersion, len(files)), certificates: make([]*tls.Certificate, len(files)),
	}
	for i := range files {
		if err := c.load(i); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Certificate returns the certificate for a handshake. If several fit, it is the first of the files. It returns
// ErrNoCertificate if none fits.
func (c *CertificateFiles) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	for _, certificate := range c.current() {
		if hello.SupportsCertificate(certificate) == nil {
			return certificate, nil
		}
	}
	return nil, ErrNoCertificate
}

// Covers reports whether one of the certificates is for a host.
func (c *CertificateFiles) Covers(host string) bool {
	return slices.ContainsFunc(c.current(), func(certificate *tls.Certificate) bool { return certificate.Leaf.VerifyHostname(host) == nil })
}

// current returns the certificates, after it has read the files that have changed. A file that cannot be read, or not yet with its
// key, because only one of the two is replaced so far, keeps its certificate, and is tried again.
func (c *CertificateFiles) current() []*tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.checked) >= fileCheckInterval {
		c.checked = now
		for i, file := range c.files {
			version, err := versionOf(file)
			if err == nil && version == c.read[i] {
				continue
			}
			if err == nil {
				err = c.load(i)
			}
			if err != nil {
				c.log.Error("cannot read a changed certificate; the previous one is used", "file", file.Certificate, "error", err)
				continue
			}
			c.log.Info("certificate was read again", "file", file.Certificate)
		}
	}
	return slices.Clone(c.certificates)
}

// load reads a certificate. The version is taken before the content, so that a change in between is noticed.
func (c *CertificateFiles) load(i int) error {
	file := c.files[i]
	version, err := versionOf(file)
	if err != nil {
		return err
	}
	certificate, err := tls.LoadX509KeyPair(file.Certificate, file.Key)
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", file.Certificate, file.Key, err)
	}
	c.read[i], c.certificates[i] = version, &certificate
	return nil
}

func versionOf(file CertificateFile) (v fileVersion, err error) {
	certificate, err := os.Stat(file.Certificate)
	if err != nil {
		return v, err
	}
	key, err := os.Stat(file.Key)
	if err != nil {
		return v, err
	}
	v.certificate.modified, v.certificate.size = certificate.ModTime(), certificate.Size()
	v.key.modified, v.key.size = key.ModTime(), key.Size()
	return v, nil
}
