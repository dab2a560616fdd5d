package node

import (
	"crypto/tls"
	"net/http"

	"github.com/atelier-run/atelier/http/server"
)

// TLS returns the configuration of HTTPS: a certificate of the files of the settings, if one fits the name of a handshake.
func (n *Node) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: n.certificateFiles.GetCertificate}
}

// Challenges returns a handler that answers the requests of the certificate authority, and passes all others on.
func (n *Node) Challenges(next http.Handler) http.Handler { return next }

// newCertificateFiles reads the files with certificates.
func (n *Node) newCertificateFiles(o Options) (err error) {
	n.certificateFiles, err = server.NewCertificateFiles(o.CertificateFiles, o.Clock, o.Log)
	return err
}
