package memory_test

import (
	"testing"

	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/store/storetest"
)

func factory() storetest.Factory {
	return storetest.Factory{
		Open: func(_ testing.TB, s store.Settings, clock *storetest.Clock) store.RoutingStore {
			return memory.New(memory.Options{Settings: s, Clock: clock.Now})
		},
	}
}

func TestContract(t *testing.T) { storetest.Run(t, factory()) }

func TestModel(t *testing.T) { storetest.RunModel(t, factory()) }
