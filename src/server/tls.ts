import { readFile } from "node:fs/promises";
import { createSecureContext } from "node:tls";
import type { Clock } from "../base/clock.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { TlsConfig } from "../runtime/server-config.ts";

/** A key and its certificate, as PEM. */
export type KeyPair = { readonly key: string; readonly cert: string };

/** The server's key and certificate, read again when their files change. */
export type Certificate = {
  readonly current: KeyPair;
  /** Calls back with each later pair. */
  onChange(callback: (pair: KeyPair) => void): void;
  close(): void;
};

// Certificates are renewed days before they expire. Files are read instead of watched: a mounted secret is
// replaced by a link to another folder, which watchers of the old file don't see.
const reloadMs = 5_000;

/**
 * Reads the key and the certificate, and refuses a pair that doesn't fit. A later pair that doesn't fit is
 * logged, and the one before stays: its other half may not be written yet.
 */
export async function openCertificate(
  files: TlsConfig,
  { clock, log }: { clock: Clock; log: Logger },
): Promise<Certificate> {
  let current = await readPair(files).catch((error: unknown) => {
    const message = `server.tls: ${messageOf(error)}: name the PEM files of a key and its certificate`;
    throw new FlotillaError("invalid_option", message, { cause: error });
  });
  const callbacks: ((pair: KeyPair) => void)[] = [];
  /** What the log has said of the last pair that wasn't taken. */
  let said: string | undefined;
  let closed = false;
  let cancel = () => {};

  const reload = async (): Promise<void> => {
    try {
      const pair = await readPair(files);
      said = undefined;
      if (closed || (pair.key === current.key && pair.cert === current.cert)) return;
      current = pair;
      for (const callback of callbacks) callback(pair);
      log.info({ cert: files.cert }, "certificate reloaded");
    } catch (error) {
      const reason = messageOf(error);
      if (reason !== said)
        log.warn({ cert: files.cert, error: reason }, "certificate not reloaded");
      said = reason;
    }
  };
  const again = (): void => {
    cancel = clock.after(reloadMs, () => {
      void reload().finally(() => {
        if (!closed) again();
      });
    });
  };
  again();

  return {
    get current() {
      return current;
    },
    onChange: (callback) => void callbacks.push(callback),
    close() {
      closed = true;
      cancel();
    },
  };
}

async function readPair({ key, cert }: TlsConfig): Promise<KeyPair> {
  const [keyText, certText] = await Promise.all([readFile(key, "utf8"), readFile(cert, "utf8")]);
  const pair = { key: keyText, cert: certText };
  // Throws where one isn't PEM, or the key is another's.
  createSecureContext(pair);
  return pair;
}
