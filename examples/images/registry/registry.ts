import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type Digest, digestOf } from "../disk/digest.ts";
import { type Fault, serveBlob, type Served } from "./blob.ts";
import { layerType, type Manifest, manifestType } from "./manifest.ts";

/** A registry in memory, for the example and its tests, that misbehaves when it is told to. */
export type Registry = AsyncDisposable & {
  readonly url: string;
  /** Puts an image there, as `repository:tag`. */
  readonly push: (reference: string, layers: readonly Uint8Array[]) => Manifest;
  /** What goes wrong with the next requests for this, one after another. */
  readonly fail: (of: string, ...faults: Fault[]) => void;
  readonly served: (of: string) => Served;
  readonly close: () => Promise<void>;
};

export async function startRegistry({ port = 0 }: { port?: number } = {}): Promise<Registry> {
  const blobs = new Map<string, Uint8Array>();
  const tags = new Map<string, Digest>();
  const faults = new Map<string, Fault[]>();
  const served = new Map<string, Served>();
  const servedOf = (of: string): Served => {
    const known = served.get(of) ?? { requests: 0, bytes: 0, ranges: [] };
    served.set(of, known);
    return known;
  };

  const answer = (request: IncomingMessage, response: ServerResponse): void => {
    const path = decodeURIComponent(new URL(request.url ?? "/", "http://registry").pathname);
    const asked = /^\/v2\/(?<repository>.+)\/(?<kind>manifests|blobs)\/(?<of>[^/]+)$/.exec(path);
    if (!asked?.groups) return void response.writeHead(404).end();
    const { repository, kind, of } = asked.groups as Record<string, string>;
    const tagged = kind === "manifests" ? tags.get(`${repository}:${of}`) : undefined;
    const digest = tagged ?? (of as Digest);
    const content = blobs.get(digest);
    // Tests know a manifest by its tag, and a blob by its digest.
    const name = tagged ? `${repository}:${of}` : digest;
    const counted = servedOf(name);
    counted.requests++;
    const fault = faults.get(name)?.shift();
    if (!content) return void response.writeHead(404).end();
    serveBlob(request, response, {
      content,
      digest,
      fault,
      counted,
      type: kind === "manifests" ? manifestType : layerType,
    });
  };

  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    push(reference, layers) {
      const manifest: Manifest = {
        schemaVersion: 2,
        mediaType: manifestType,
        layers: layers.map((content) => {
          const digest = digestOf(content);
          blobs.set(digest, content);
          return { mediaType: layerType, digest, size: content.length };
        }),
      };
      const text = Buffer.from(JSON.stringify(manifest));
      blobs.set(digestOf(text), text);
      tags.set(reference, digestOf(text));
      return manifest;
    },
    fail: (of, ...more) => void faults.set(of, [...(faults.get(of) ?? []), ...more]),
    served: servedOf,
    close,
    [Symbol.asyncDispose]: close,
  };
}
