import { execFileSync } from "node:child_process";
import { chownSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { part } from "../parts.ts";
import { unprivileged } from "./user.ts";

export type Certificates = {
  /** Files of a server that calls itself `localhost`, and of the authority that says so. */
  readonly authority: string;
  readonly certificate: string;
  readonly key: string;
  /** An authority that has nothing to do with it. */
  readonly stranger: string;
  readonly ca: string;
  remove(): void;
};

/** Certificates made on the spot, in a folder that an unprivileged server can read. */
export function makeCertificates(): Certificates {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-certificates-"));
  const at = (name: string) => join(folder, name);
  const openssl = (line: string) =>
    execFileSync(part("openssl"), line.split(" "), { stdio: "pipe", cwd: folder });
  const newKey = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout";
  for (const name of ["authority", "stranger"]) {
    openssl(`req -x509 ${newKey} ${name}.key -out ${name}.pem -days 2 -subj /CN=${name}`);
  }
  writeFileSync(at("names"), "subjectAltName=DNS:localhost\n");
  openssl(`req ${newKey} server.key -out server.csr -subj /CN=localhost`);
  openssl(
    "x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 -extfile names -out server.pem",
  );
  const user = unprivileged();
  if (user) {
    for (const path of [folder, at("server.key"), at("server.pem")]) {
      chownSync(path, user.uid, user.gid);
    }
  }
  return {
    authority: at("authority.pem"),
    certificate: at("server.pem"),
    key: at("server.key"),
    stranger: at("stranger.pem"),
    ca: readFileSync(at("authority.pem"), "utf8"),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}
