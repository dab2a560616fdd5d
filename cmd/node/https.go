package node

import (
	"crypto/tls"
	"net/http"
	"slices"

	"github.com/atelier-run/atelier/edge/domains"
	"github.com/atelier-run/atelier/http/server"
)

// TLS returns the configuration of HTTPS.
func (n *Node) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: n.certificate, NextProtos: []string{domains.ChallengeProtocol}}
}

// certificate returns the certificate for a handshake: one of the files of the settings, if it fits the name, or one of the store. The
// handshakes of the certificate authority get that of an open challenge.
func (n *Node) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if !slices.Contains(hello.SupportedProtos, domains.ChallengeProtocol) {
		if certificate, err := n.certificateFiles.GetCertificate(hello); err == nil {
			return certificate, nil
		}
	}
	return n.Domains.Certificates.Certificate(hello)
}

// Challenges returns a handler that answers the requests of the certificate authority, and passes all others on.
func (n *Node) Challenges(next http.Handler) http.Handler {
	return n.Domains.HTTPChallengeHandler(next)
}

// newCertificateFiles reads the files with certificates.
func (n *Node) newCertificateFiles(o Options) (err error) {
	n.certificateFiles, err = server.NewCertificateFiles(o.CertificateFiles, o.Clock, o.Log)
	return err
}
