import * as keys from "../../src/keys/sql.ts";
import { noStatement, type RoomStatements, sqlFile } from "./examples.ts";

const key = {
  keyId: "key-1",
  hash: "0123",
  name: "ci",
  role: "operator",
  tenant: null,
  payloads: false,
  createdBy: "ada",
  expiresAtMs: 9,
} as const;
const rotation = {
  keyId: "key-1",
  newKeyId: "key-2",
  hash: "4567",
  createdBy: "ada",
  overlapMs: 60_000,
};
const signIn = {
  signInId: "sign-in-1",
  hash: "89ab",
  keyId: "key-1",
  binding: null,
  keyName: "ci",
  role: "operator",
  tenant: null,
  verbs: "[]",
  origin: "https://ops.example",
  address: "10.0.0.1",
};
const owner = { keyId: "key-1", keyName: "ci", tenant: "acme", signInId: "sign-in-1" };
const times = { lifeMs: 720_000, idleMs: 60_000 };
const revocation = {
  kind: "user",
  tenant: "default",
  subject: "ada",
  beforeMs: 5,
  expiresAtMs: 9,
  createdBy: null,
} as const;

export const keyStatements: RoomStatements = {
  "src/keys/sql.ts": sqlFile(keys, {
    nextVersion: () => keys.nextVersion(),
    readVersion: () => keys.readVersion(),
    insertKey: () => keys.insertKey(key, 100),
    insertRotated: () => keys.insertRotated(rotation, 100),
    expireRotated: () => keys.expireRotated(rotation),
    revokeKey: () => keys.revokeKey("key-1"),
    keyExists: noStatement,
    keyIsUnrevoked: noStatement,
    revocationExists: noStatement,
    pruneKeys: () => keys.pruneKeys(60_000),
    readKeys: () => keys.readKeys(["key-1", "key-2"]),
    listKeys: () => [keys.listKeys(undefined, 50), keys.listKeys("key-1", 50)],
    keysSince: () => keys.keysSince(3),
    noteUses: () => keys.noteUses([["key-1", 5]]),
    insertSignIn: () =>
      keys.insertSignIn({ ...signIn, replacedHash: "89ab" }, times, {
        max: 100,
        maxPerKey: 10,
        maxKept: 1_000,
      }),
    endSignIn: () => [keys.endSignIn("sign-in-1", undefined), keys.endSignIn("sign-in-1", owner)],
    endReplacedSignIn: () => keys.endReplacedSignIn("89ab", "sign-in-1"),
    signInExists: noStatement,
    signInIsOpen: noStatement,
    pruneSignIns: () => keys.pruneSignIns(60_000, times),
    readSignIn: () => [keys.readSignIn("sign-in-1", undefined), keys.readSignIn("sign-in-1", {})],
    listSignIns: () => [
      keys.listSignIns(undefined, times, undefined, 50),
      keys.listSignIns(owner, times, "sign-in-1", 50),
    ],
    signInsSince: () => keys.signInsSince(3),
    noteSignInUses: () => keys.noteSignInUses([["sign-in-1", 5]]),
    insertRevocation: () => keys.insertRevocation(revocation, 100),
    pruneRevocations: () => keys.pruneRevocations(),
    readRevocation: () => keys.readRevocation(revocation),
    listRevocations: () => keys.listRevocations(revocation, 50),
    revocationsSince: () => keys.revocationsSince(3),
  }),
};
