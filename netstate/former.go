package netstate

// noteBefore adds to old, which is the book's, what the host has where mine will change it, and says whether that is new.
func (k *kernel) noteBefore(old map[string]string, mine []resource) (changes bool, err error) {
	for _, r := range mine {
		switch c := r.(type) {
		case acceptRA:
			paths, err := acceptingRA(old)
			if err != nil {
				return false, err
			}
			k.listening = paths
			for _, path := range paths {
				old[path], changes = "1", true
			}
		case neighbour:
			mac, err := k.others(c)
			if err != nil {
				return false, err
			}
			if mac != "" && old[c.key()] != mac {
				old[c.key()], changes = mac, true
			}
		case sysctl:
			_, was, same, err := c.change()
			if err != nil {
				return false, err
			}
			if note := noted(c.path, was); !same && old[c.path] != note { // or what somebody has set since
				old[c.path], changes = note, true
			}
		}
	}
	return changes, nil
}

// former is what the host had before we changed it.
type former struct {
	old    map[string]string // as the book has it
	kept   map[string]string // less what was put back
	theirs bool              // others have the host forward IPv6 since: what that needs stays
}

// undo puts back what r, which was removed, had replaced, unless what stays needs it.
func (f former) undo(r resource, stay []resource) error {
	switch r := r.(type) {
	case neighbour:
		mac := f.old[r.key()]
		if mac == "" {
			return nil
		}
		delete(f.kept, r.key())
		return putBack(r.key(), mac)
	case sysctl:
		if needed(stay, r.path) {
			return nil
		}
		if r.path == forwarding6 {
			delete(f.kept, toCome6)
		}
		value, changed := f.old[r.path]
		if !changed {
			return nil
		}
		delete(f.kept, r.path)
		if f.theirs && ofForwarding6(r.path) {
			return nil
		}
		return restore(r.path, value)
	case acceptRA:
		paths, err := r.restored(f.old, f.theirs)
		for _, path := range paths {
			delete(f.kept, path)
		}
		return err
	}
	return nil
}
