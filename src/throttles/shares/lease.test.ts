import { describe, expect, test } from "vitest";
import {
  type ShareEntry,
  grantedShare,
  type Lease,
  leaseAfterRead,
  noLease,
  writeRefused,
  writeSent,
  type ShareWrite,
} from "./lease.ts";

const leaseMs = 60_000;
const entry = (share: number, renewal: number): ShareEntry => ({
  share,
  renewal,
  leaseMs: 10_000,
  longestMs: 1_000,
});
const sent = (share: number, renewal: number, rev: number, sentMs: number): ShareWrite => ({
  share,
  renewal,
  rev,
  sentMs,
});
const held: Lease = { confirmed: { share: 5, renewal: 1, sentMs: 100 }, unconfirmed: [] };

describe("a lease", () => {
  test("is none before something is known to be stored", () => {
    const lease = writeSent(noLease, sent(4, 1, 7, 100));
    expect(grantedShare(lease, leaseMs)).toMatchObject({ limit: 0 });
  });

  test("is counted from before its renewal was sent", () => {
    const lease = leaseAfterRead(writeSent(noLease, sent(4, 1, 7, 100)), 8, entry(4, 1));
    expect(grantedShare(lease, leaseMs)).toEqual({ limit: 4, untilMs: 60_100 });
    expect(lease.unconfirmed).toEqual([]);
  });

  test("is the lower of both while it isn't known which is stored, for the time of the older", () => {
    const raised = writeSent(held, sent(9, 2, 8, 20_000));
    expect(grantedShare(raised, leaseMs)).toEqual({ limit: 5, untilMs: 60_100 });
    const lowered = writeSent(held, sent(2, 2, 8, 20_000));
    expect(grantedShare(lowered, leaseMs)).toEqual({ limit: 2, untilMs: 60_100 });
    const both = writeSent(lowered, sent(7, 3, 8, 21_000));
    expect(grantedShare(both, leaseMs)).toEqual({ limit: 2, untilMs: 60_100 });
  });

  test("is the renewal in the row, once it was read", () => {
    const doubtful = writeSent(writeSent(held, sent(2, 2, 8, 20_000)), sent(7, 3, 8, 21_000));
    expect(grantedShare(leaseAfterRead(doubtful, 9, entry(7, 3)), leaseMs)).toEqual({
      limit: 7,
      untilMs: 81_000,
    });
    expect(grantedShare(leaseAfterRead(doubtful, 9, entry(2, 2)), leaseMs)).toEqual({
      limit: 2,
      untilMs: 80_000,
    });
    // Another pod has changed the row, so neither can be stored any more.
    expect(leaseAfterRead(doubtful, 9, entry(5, 1))).toEqual(held);
  });

  test("stays in doubt while the row is at the revision that the write requires", () => {
    const doubtful = leaseAfterRead(writeSent(held, sent(2, 2, 8, 20_000)), 8, entry(5, 1));
    expect(grantedShare(doubtful, leaseMs).limit).toBe(2);
  });

  test("goes on as it was where a write was refused", () => {
    const write = sent(9, 2, 8, 20_000);
    expect(writeRefused(writeSent(held, write), write)).toEqual(held);
  });

  test("is over where the row has nothing of it, or something that this pod doesn't remember", () => {
    expect(grantedShare(leaseAfterRead(held, 9, undefined), leaseMs).limit).toBe(0);
    expect(grantedShare(leaseAfterRead(held, 9, entry(5, 77)), leaseMs).untilMs).toBe(-Infinity);
  });
});
