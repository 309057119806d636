import process from "node:process";
import { FlotillaError, messageOf } from "../base/errors.ts";
import { bytesGone, type FileStorage } from "./storage.ts";

export type S3Config = {
  bucket: string;
  /** Default: `AWS_REGION` of the environment. A service that has none takes `us-east-1`. */
  region?: string;
  /** Where the service is, as `https://minio.internal:9000`. Default: AWS, in the region. */
  endpoint?: string;
  /** What the names of all objects begin with. Default `flotilla/`. */
  prefix?: string;
  /**
   * Keys, or what gives them, for those that expire. Default: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and
   * `AWS_SESSION_TOKEN` of the environment.
   */
  credentials?: S3Credentials | (() => Promise<S3Credentials>);
};

export type S3Credentials = {
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string;
};

/** An object for each of these, because one that is larger would be sent whole once more when it is cut off. */
const partBytes = 1024 * 1024;
const limitMs = 60_000;
/** How often a request is sent again that the service refuses for now, with pauses from 50 ms on. */
const retries = 5;
const listedBytes = 1024 * 1024;

/** Keeps bytes in objects of a bucket. */
export function createS3Storage(config: S3Config): FileStorage {
  const { bucket, prefix = "flotilla/" } = config;
  const region = config.region ?? process.env["AWS_REGION"] ?? "us-east-1";
  const root = config.endpoint
    ? `${config.endpoint.replace(/\/$/, "")}/${bucket}`
    : `https://${bucket}.s3.${region}.amazonaws.com`;
  const nameOf = (fileId: string, part: number) => `${prefix}${fileId}/${part}`;
  const urlOf = (name: string) => `${root}/${name.split("/").map(encodeURIComponent).join("/")}`;

  const send = async (url: string, init: RequestInit = {}): Promise<Response> => {
    const { AwsClient } = await loadClient();
    const client = new AwsClient({
      ...(await credentialsOf(config)),
      service: "s3",
      region,
      retries,
    });
    try {
      return await client.fetch(url, { ...init, signal: AbortSignal.timeout(limitMs) });
    } catch (error) {
      throw unreached(bucket, messageOf(error), error);
    }
  };
  /** An answer that isn't wanted is read as far as it says why. */
  const refused = async (answer: Response): Promise<FlotillaError> => {
    const code = /<Code>(\w+)<\/Code>/.exec(await textOf(answer))?.[1] ?? "";
    return unreached(bucket, `${answer.status} ${code}`.trim());
  };

  const names = async (fileId: string): Promise<string[]> => {
    const found: string[] = [];
    for (let after = ""; ;) {
      const query = new URLSearchParams({ "list-type": "2", prefix: `${prefix}${fileId}/` });
      if (after !== "") query.set("start-after", after);
      const answer = await send(`${root}?${query.toString()}`);
      if (!answer.ok) throw await refused(answer);
      const page = namesIn(await textOf(answer));
      if (page.length === 0) return found;
      if (page[0] === found[0]) {
        throw unreached(
          bucket,
          "lists of its objects begin anew, whatever they are to start after",
        );
      }
      found.push(...page);
      after = page.at(-1)!;
    }
  };

  return {
    place: "s3",
    partBytes,
    async write(fileId, part, bytes) {
      const body = Uint8Array.from(bytes);
      const answer = await send(urlOf(nameOf(fileId, part)), {
        method: "PUT",
        body,
        headers: { "Content-Type": "application/octet-stream" },
      });
      if (!answer.ok) throw await refused(answer);
      await answer.body?.cancel();
    },
    // What is acknowledged is stored.
    flush: () => Promise.resolve(),
    async read(fileId, part, { from, to }) {
      const headers = { Range: `bytes=${from}-${to}` };
      const answer = await send(urlOf(nameOf(fileId, part)), { headers });
      if (answer.status === 404) {
        const error = await refused(answer);
        throw error.message.includes("NoSuchBucket") ? error : bytesGone(error);
      }
      if (answer.status !== 206) throw await refused(answer);
      return new Uint8Array(await answer.arrayBuffer());
    },
    async remove(fileId) {
      for (const name of await names(fileId)) {
        const answer = await send(urlOf(name), { method: "DELETE" });
        if (!answer.ok && answer.status !== 404) throw await refused(answer);
        await answer.body?.cancel();
      }
    },
  };
}

async function loadClient(): Promise<typeof import("aws4fetch")> {
  try {
    return await import("aws4fetch");
  } catch (error) {
    throw new FlotillaError(
      "unsupported",
      "`files.s3` needs what signs its requests: npm install aws4fetch",
      { cause: error },
    );
  }
}

async function credentialsOf({ credentials }: S3Config): Promise<S3Credentials> {
  if (typeof credentials === "function") return credentials();
  if (credentials) return credentials;
  const accessKeyId = process.env["AWS_ACCESS_KEY_ID"];
  const secretAccessKey = process.env["AWS_SECRET_ACCESS_KEY"];
  const sessionToken = process.env["AWS_SESSION_TOKEN"];
  if (accessKeyId && secretAccessKey) {
    return { accessKeyId, secretAccessKey, ...(sessionToken && { sessionToken }) };
  }
  throw new FlotillaError(
    "unavailable",
    "`files.s3` has no keys: set `credentials`, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
  );
}

/** Names of objects in a list. Those of ours have nothing that XML writes in another way. */
function namesIn(list: string): string[] {
  return [...list.matchAll(/<Key>([^<]+)<\/Key>/g)].map(([, name]) => name!);
}

async function textOf(answer: Response): Promise<string> {
  const text = Buffer.from(await answer.arrayBuffer());
  return text.subarray(0, listedBytes).toString("utf8");
}

function unreached(bucket: string, why: string, cause?: unknown): FlotillaError {
  return new FlotillaError(
    "unavailable",
    `the bucket ${bucket} doesn't take or give files: ${why}`,
    {
      cause,
    },
  );
}
