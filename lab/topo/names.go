package topo

// Core is the namespace of the internet.
func (t *Topo) Core() string { return t.spec.namespace(coreNode) }
