package httpclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ClientTLS configures TLS connections to a server. The zero value trusts the authorities of the
// system and presents no certificate.
type ClientTLS struct {
	CA         string // PEM file with the trusted authorities, instead of those of the system
	Cert, Key  string // PEM files with the client certificate and its key; both or none
	ServerName string // name that the server's certificate must have; "" = host of the URL
}

// Config reads the files.
func (t ClientTLS) Config() (*tls.Config, error) {
	c := &tls.Config{ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := readPEM("tls.ca", t.CA)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.ca: %s has no certificate in PEM", absolute(t.CA))
		}
	}
	if t.Cert != "" {
		cert, err := readPEM("tls.cert", t.Cert)
		if err != nil {
			return nil, err
		}
		key, err := readPEM("tls.key", t.Key)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("tls.cert and tls.key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// maxPEM bounds the size of each file, in bytes.
const maxPEM = 16 << 20

// readPEM reads the file given by a key of the configuration. The file is read at each start of the
// backend, so it must be a regular file or a link to a regular file: a pipe would be empty the
// second time, and opening a pipe may block forever.
func readPEM(key, path string) ([]byte, error) {
	text, err := readRegular(path)
	if at, is := errors.AsType[*fs.PathError](err); is {
		err = at.Err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", key, absolute(path), err)
	}
	return text, nil
}

// readRegular reads a regular file of at most maxPEM bytes.
func readRegular(path string) ([]byte, error) {
	// Without O_NONBLOCK, opening a pipe would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, errors.New("is a directory: name a file")
	case !info.Mode().IsRegular():
		return nil, errors.New("is a pipe or a device: " +
			"name a regular file, which can be read again at each start of the backend")
	case info.Size() > maxPEM:
		return nil, errPEMTooLong
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPEM+1))
	if err == nil && len(text) > maxPEM {
		err = errPEMTooLong
	}
	return text, err
}

var errPEMTooLong = errors.New("is longer than 16 MiB, which no certificate or key is")

// absolute returns the absolute path, for an error message.
func absolute(path string) string {
	if all, err := filepath.Abs(path); err == nil {
		return all
	}
	return path
}
