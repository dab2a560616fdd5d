package mail_test

import (
	"bufio"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// server is an SMTP server with the commands that a Sender uses.
type server struct {
	*testing.T
	listener net.Listener
	secure   *tls.Config
	roots    *x509.CertPool
	// starttls makes the server offer STARTTLS. If password is set, it requires authentication. replies are the refusals by command;
	// "." has the refusal of a message, and "" the greeting. silent makes the server send nothing. If leaves is set, it closes the
	// connection when it has accepted a message.
	starttls bool
	password string
	replies  map[string]string
	silent   bool
	leaves   bool

	mu       sync.Mutex
	received []letter
	open     sync.WaitGroup
}

// letter is a received message.
type letter struct {
	from, to, text string
	private        bool
}

func serve(t *testing.T, implicit bool, edit func(*server)) *server {
	s := &server{T: t}
	s.secure, s.roots = certificate(t)
	edit(s)
	var err error
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if implicit {
		s.listener = tls.NewListener(s.listener, s.secure)
	}
	s.open.Go(func() {
		for {
			connection, err := s.listener.Accept()
			if err != nil {
				return
			}
			s.open.Go(func() { s.talk(connection, implicit) })
		}
	})
	t.Cleanup(func() { s.listener.Close(); s.open.Wait() })
	return s
}

func (s *server) letters() []letter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received
}

func (s *server) talk(connection net.Conn, private bool) {
	defer func() { connection.Close() }()
	connection.SetDeadline(time.Now().Add(3 * time.Minute))
	if s.silent {
		io.Copy(io.Discard, connection)
		return
	}
	lines := bufio.NewReader(connection)
	say := func(text string) { io.WriteString(connection, text+"\r\n") }
	say(cmp.Or(s.replies[""], "220 test"))
	var at letter
	known := s.password == ""
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		verb, rest, _ := strings.Cut(line, " ")
		verb = strings.ToUpper(verb)
		if refusal := s.replies[verb]; refusal != "" {
			say(refusal)
			continue
		}
		switch verb {
		case "EHLO":
			say("250-test")
			say("250-ENHANCEDSTATUSCODES")
			if s.starttls && !private {
				say("250-STARTTLS")
			}
			say("250 AUTH PLAIN")
		case "STARTTLS":
			say("220 go on")
			connection = tls.Server(connection, s.secure)
			lines, private = bufio.NewReader(connection), true
		case "AUTH":
			given, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(rest, "PLAIN "))
			if known = string(given) == "\x00atelier\x00"+s.password; !known {
				say("535 wrong")
				continue
			}
			say("235 known")
		case "MAIL":
			if !known {
				say("530 who are you")
				continue
			}
			at = letter{from: rest, private: private}
			say("250 ok")
		case "RCPT":
			at.to = rest
			say("250 ok")
		case "DATA":
			say("354 go on")
			for line := ""; line != ".\r\n"; {
				if line, err = lines.ReadString('\n'); err != nil {
					return
				}
				at.text += line
			}
			if refusal := s.replies["."]; refusal != "" {
				say(refusal)
				continue
			}
			s.mu.Lock()
			s.received = append(s.received, at)
			s.mu.Unlock()
			say("250 taken")
			if s.leaves {
				return
			}
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

// certificate returns a certificate for the loopback address, and the pool with its authority.
func certificate(t *testing.T) (*tls.Config, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, roots
}
