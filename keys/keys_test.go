package keys_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/keys"
)

func TestSplit(t *testing.T) {
	const start, id, ulid = "atl_", "key_01jd0000000000000000000000", "01jd0000000000000000000000"
	key, hash := keys.New(start, id)
	if found, secret, ok := keys.Split(start, key); !ok || found != ulid || !bytes.Equal(keys.Hash(secret), hash) || len(secret) != keys.SecretLength {
		t.Errorf("%s has the parts %q, %q, %t", key, found, secret, ok)
	}
	other, _ := keys.New(start, id)
	if other == key {
		t.Error("two keys have the same secret")
	}
	for _, wrong := range []string{
		"", start, key[1:], key + "a", key[:len(key)-1], strings.Replace(key, "_0", "-0", 1), strings.ToUpper(key),
		key[:len(key)-1] + "1", start + ulid + "." + key[len(start)+len(ulid)+1:],
	} {
		if _, _, ok := keys.Split(start, wrong); ok {
			t.Errorf("%q is taken for a key", wrong)
		}
	}
}
