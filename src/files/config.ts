import { FlotillaError } from "../base/errors.ts";
import { checkNumber, checkOptions, type NumberRange } from "../base/options.ts";
import { defaultFileSettings, type FilesConfig, type FileSettings } from "./files.ts";
import type { S3Config } from "./s3.ts";

const numbers = {
  maxFileBytes: { min: 1, max: 1024 ** 3 },
  sessionFiles: { min: 1, max: 1_000_000 },
  sessionBytes: { min: 1, max: 1024 ** 5 },
  taskFiles: { min: 1, max: 10_000 },
  taskBytes: { min: 1, max: 1024 ** 5 },
  tenantFiles: { min: 1, max: 1_000_000_000 },
  tenantBytes: { min: 1, max: 1024 ** 5 },
} satisfies Record<string, NumberRange>;

/** Refuses invalid options of files, and fills in the defaults. */
export function checkFiles(what: string, config: FilesConfig = {}): FileSettings {
  checkOptions(what, config, [...Object.keys(numbers), "folder", "s3", "publicUrl"]);
  for (const [name, range] of Object.entries(numbers)) {
    const value = config[name as keyof typeof numbers];
    if (value !== undefined) checkNumber(`${what}.${name}`, value, range);
  }
  const { folder, s3, publicUrl } = config;
  if (folder !== undefined && (typeof folder !== "string" || folder === "")) {
    throw new FlotillaError("invalid_option", `${what}.folder must be the path of a folder`);
  }
  if (s3 !== undefined) checkS3(`${what}.s3`, s3);
  if (s3 !== undefined && folder !== undefined) {
    throw new FlotillaError(
      "invalid_option",
      `${what} has a folder and a bucket: name one of them`,
    );
  }
  const settings = { ...defaultFileSettings, ...config };
  return publicUrl === undefined
    ? settings
    : { ...settings, publicUrl: checkPublicUrl(`${what}.publicUrl`, publicUrl) };
}

function checkS3(what: string, config: S3Config): void {
  checkOptions(what, config, ["bucket", "region", "endpoint", "prefix", "credentials"]);
  const { bucket, region, endpoint, prefix, credentials } = config;
  const invalid = (name: string, must: string) =>
    new FlotillaError("invalid_option", `${what}.${name} must be ${must}`);
  if (typeof bucket !== "string" || !/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/.test(bucket)) {
    throw invalid(
      "bucket",
      "the name of a bucket: 3 to 63 lower-case letters, digits, dots and hyphens",
    );
  }
  if (region !== undefined && !/^[a-z0-9-]{1,40}$/.test(region)) {
    throw invalid("region", "the name of a region, such as eu-central-1");
  }
  const url = endpoint !== undefined && URL.canParse(endpoint) ? new URL(endpoint) : undefined;
  const isPlain =
    url && /^https?:$/.test(url.protocol) && `${url.username}${url.search}${url.hash}` === "";
  if (endpoint !== undefined && !isPlain) {
    throw invalid("endpoint", "where the service is, such as https://minio.internal:9000");
  }
  if (prefix !== undefined && !/^[^\p{Cc}<>&"']{0,200}$/u.test(prefix)) {
    throw invalid("prefix", "up to 200 characters, such as chats/");
  }
  const isGiven = credentials !== undefined && typeof credentials !== "function";
  if (isGiven && !(credentials?.accessKeyId && credentials.secretAccessKey)) {
    throw invalid(
      "credentials",
      "an accessKeyId and a secretAccessKey, or a function that gives them",
    );
  }
}

function checkPublicUrl(what: string, given: string): string {
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (url && /^https?:$/.test(url.protocol) && url.search === "" && url.hash === "") {
    return url.href.replace(/\/$/, "");
  }
  throw new FlotillaError(
    "invalid_option",
    `${what} must be where agents reach this server, such as https://chat.example.com`,
  );
}
