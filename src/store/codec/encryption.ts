import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  type KeyObject,
} from "node:crypto";
import { FlotillaError } from "../../base/errors.ts";
import { checkOptions } from "../../base/options.ts";
import { type Random, drawBytes, systemRandom } from "../../base/random.ts";
import type { PayloadCodec } from "./codec.ts";

export type EncryptionOptions = {
  /** Keys by name: 32 bytes each, in base64 or hexadecimal. Old ones stay until nothing was written by them. */
  keys: Readonly<Record<string, string>>;
  /** The name of the key that new values are written by. Default: the last of `keys`. */
  use?: string;
};

const keyBytes = 32;
const saltBytes = 12;
const nonceBytes = 12;
const tagBytes = 16;
const headBytes = saltBytes + nonceBytes + tagBytes;
const keyName = /^[\w.-]{1,40}$/;
// Far fewer than random nonces need to repeat, and enough that making the key costs nothing.
const valuesPerSalt = 65_536;
const maxDerived = 1_000;

/**
 * Encrypts with AES-256-GCM. Values are written by keys that are made of the named key and a random salt,
 * a new one for every so many, so that a key may be used for any number of values. A value says by which
 * key it was written.
 */
export function encryption(
  options: EncryptionOptions,
  { random = systemRandom }: { random?: Random } = {},
): PayloadCodec {
  checkOptions("encryption", options, ["keys", "use"]);
  const keys = new Map(
    Object.entries(options.keys ?? {}).map(([name, text]) => [name, keyOf(name, text)]),
  );
  const { use = [...keys.keys()].at(-1) } = options;
  const current = keys.get(use ?? "");
  if (use === undefined || !current) {
    throw invalid(
      use === undefined
        ? "encryption: name at least one key in `keys`"
        : `encryption: \`use\` names the key ${JSON.stringify(use)}, which isn't in \`keys\``,
    );
  }

  const authenticated = new Map([...keys.keys()].map((name) => [name, Buffer.from(name)]));
  const derived = new Map<string, KeyObject>();
  /** The key of a salt, which most values that are read together share. */
  const derivedKey = (name: string, key: KeyObject, head: Buffer): KeyObject => {
    const id = `${name}:${head.toString("latin1", 0, saltBytes)}`;
    let found = derived.get(id);
    if (!found) {
      found = deriveKey(key, head);
      derived.set(id, found);
      if (derived.size > maxDerived) derived.delete(derived.keys().next().value!);
    }
    return found;
  };
  let salt = Buffer.alloc(0);
  let writing = current;
  let left = 0;

  return {
    encode(text) {
      if (left === 0) {
        salt = Buffer.from(drawBytes(random, saltBytes));
        writing = deriveKey(current, salt);
        left = valuesPerSalt;
      }
      left--;
      const nonce = drawBytes(random, nonceBytes);
      const cipher = createCipheriv("aes-256-gcm", writing, nonce);
      cipher.setAAD(authenticated.get(use)!);
      // A cipher of single bytes has nothing left to give at its end.
      const sealed = cipher.update(text, "utf8");
      cipher.final();
      const bytes = Buffer.concat([salt, nonce, cipher.getAuthTag(), sealed]);
      return `${use}:${bytes.toString("base64")}`;
    },
    decode(stored) {
      const at = stored.indexOf(":");
      const name = stored.slice(0, Math.max(0, at));
      const key = keys.get(name);
      if (!key) throw new Error(`there is no key ${JSON.stringify(name.slice(0, 40))}`);
      const bytes = Buffer.from(stored.slice(at + 1), "base64");
      if (bytes.length < headBytes) throw new Error("the value is cut off");
      const reading = derivedKey(name, key, bytes);
      const nonce = bytes.subarray(saltBytes, saltBytes + nonceBytes);
      const decipher = createDecipheriv("aes-256-gcm", reading, nonce);
      decipher.setAAD(authenticated.get(name)!);
      // Always all of its bytes: a part of them would be accepted too.
      decipher.setAuthTag(bytes.subarray(saltBytes + nonceBytes, headBytes));
      const text = decipher.update(bytes.subarray(headBytes));
      decipher.final();
      return text.toString();
    },
  };
}

// Node throws and catches an error for each key in bytes that it is given, which takes longer than the rest.
function deriveKey(key: KeyObject, head: Buffer): KeyObject {
  return createSecretKey(createHmac("sha256", key).update(head.subarray(0, saltBytes)).digest());
}

function keyOf(name: string, text: unknown): KeyObject {
  if (!keyName.test(name)) {
    throw invalid(
      `encryption: the name ${JSON.stringify(name.slice(0, 80))} must be 1 to 40 letters, digits, _, . and -`,
    );
  }
  const given = typeof text === "string" ? text : "";
  const key = Buffer.from(given, /^[0-9a-f]{64}$/i.test(given) ? "hex" : "base64");
  if (key.length === keyBytes) return createSecretKey(key);
  throw invalid(
    `encryption: the key ${JSON.stringify(name)} must be ${keyBytes} bytes in base64 or hexadecimal: make one with \`openssl rand -base64 ${keyBytes}\``,
  );
}

function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_option", message);
}
