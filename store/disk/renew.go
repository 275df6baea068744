package disk

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
)

// Renew gives the store in a folder a new epoch and answers it. That is for a file that was put back from a copy: it has
// forgotten what came after the copy, and sites publish that again when the epoch is another one. The store must be stopped;
// errors are Open's.
func Renew(ctx context.Context, dir string) (epoch string, err error) {
	path, held, err := holdDir(ctx, dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unlock(held)) }()
	db, err := openFile(path, false)
	if err != nil {
		return "", err
	}
	if err := judgeLog(db, path); err != nil {
		return "", errors.Join(err, db.Close())
	}
	epoch = uuid.NewString()
	err = guard(func() error {
		return db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(metaBucket)).Put([]byte(epochKey), []byte(epoch)) })
	})
	return epoch, errors.Join(err, db.Close())
}
