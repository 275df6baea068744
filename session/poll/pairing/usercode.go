package pairing

import (
	"crypto/rand"
	"math/big"
	"strings"
)

// userAlphabet has no vowels, so that no code is a word, and nothing that looks like something else (RFC 8628, section 6.1).
const userAlphabet = "BCDFGHJKLMNPQRSTVWXZ"

const userCodeLetters = 8 // 34 bits

// newUserCode answers a random code as it is shown: XXXX-XXXX.
func newUserCode() string {
	var b strings.Builder
	for i := range userCodeLetters {
		if i == userCodeLetters/2 {
			b.WriteByte('-')
		}
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(userAlphabet))))
		if err != nil {
			return "" // not possible: the system's random numbers never fail
		}
		b.WriteByte(userAlphabet[n.Int64()])
	}
	return b.String()
}

// normalUserCode reads a code as people type it: any case, with or without its dash and spaces. What can't be one becomes "".
func normalUserCode(typed string) string {
	if len(typed) > 64 {
		return ""
	}
	letters := make([]byte, 0, userCodeLetters)
	for _, c := range []byte(strings.ToUpper(typed)) {
		switch {
		case c == '-' || c == ' ':
		case strings.IndexByte(userAlphabet, c) < 0 || len(letters) == userCodeLetters:
			return ""
		default:
			letters = append(letters, c)
		}
	}
	if len(letters) != userCodeLetters {
		return ""
	}
	return string(letters[:userCodeLetters/2]) + "-" + string(letters[userCodeLetters/2:])
}
