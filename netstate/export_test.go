package netstate

// SetKilled is Set by a process that is killed after that many steps. It says whether that was before its end.
func SetKilled(s State, after int) (bool, error) {
	mu.Lock()
	defer mu.Unlock()
	b, err := readBook()
	if err != nil {
		return false, err
	}
	states, _, err := b.states()
	if err != nil {
		return false, err
	}
	c, err := b.change(s, b.trusts(states, s))
	if err != nil {
		return false, err
	}
	steps := c.steps()
	for _, step := range steps[:min(after, len(steps))] {
		if err := step(); err != nil {
			return false, err
		}
	}
	return after < len(steps), nil
}
