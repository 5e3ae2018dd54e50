package control

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// KeySize is the length of a run's key in bytes.
const KeySize = 32

// Key proves that a process belongs to the run. It travels through pipes and
// 0600 files only, never through an argument or the job's environment.
type Key [KeySize]byte

// NewKey makes a random key.
func NewKey() Key {
	var k Key
	rand.Read(k[:]) // crypto/rand.Read never fails: it ends the program instead
	return k
}

// String hides the key from logs and error texts.
func (k Key) String() string { return "[key]" }

// MarshalText encodes the key for a pipe or a 0600 file.
func (k Key) MarshalText() ([]byte, error) {
	return []byte(base64.RawStdEncoding.EncodeToString(k[:])), nil
}

// UnmarshalText decodes what MarshalText made.
func (k *Key) UnmarshalText(text []byte) error {
	b, err := base64.RawStdEncoding.DecodeString(string(text))
	if err != nil || len(b) != KeySize {
		return fmt.Errorf("the run's key is damaged")
	}
	copy(k[:], b)
	return nil
}

// derive makes a key for one purpose out of k and what the parties agreed on.
func (k Key) derive(purpose string, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, k[:])
	m.Write([]byte(purpose))
	for _, p := range parts {
		m.Write([]byte{0, byte(len(p) >> 8), byte(len(p))})
		m.Write(p)
	}
	return m.Sum(nil)
}
