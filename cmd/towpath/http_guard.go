package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/towpath/towpath/configs"
)

// maxRequestBytes bounds the body of a request; none needs one.
const maxRequestBytes = 64 << 10

// bearer lets a request through that carries the configured token. Without one
// the side listens on loopback, which the configuration sees to. The token is
// read again each time, so that a changed file counts.
func bearer(token configs.Secret, next http.Handler) http.Handler {
	if !token.IsSet() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want, err := token.Read()
		given, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if err != nil || !isBearer || !same(given, want) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a bearer token is needed: http.token of the configuration", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// same compares in a time that tells neither content nor length.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
