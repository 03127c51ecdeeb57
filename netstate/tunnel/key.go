package tunnel

import "golang.zx2c4.com/wireguard/wgctrl/wgtypes"

// Key is a WireGuard key, private or public (Curve25519, 32 bytes).
type Key = wgtypes.Key

// NewKey makes a private key, and the text of its public one.
func NewKey() (private Key, public string, err error) {
	private, err = wgtypes.GeneratePrivateKey()
	return private, private.PublicKey().String(), err
}

// ParseKey reads the text of a key: 32 bytes in base64.
func ParseKey(text string) (Key, error) { return wgtypes.ParseKey(text) }
