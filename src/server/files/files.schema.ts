import { z } from "zod";
import { described, named, spec, time, wholeNumber } from "../api/schema.ts";
import { taskOptions } from "../../protocol/task-options.ts";
import { sessionErrors, sessionPath } from "../api/sessions.schema.ts";

const filePart = named(
  "StoredFilePart",
  z.object({
    type: z.literal("file"),
    url: described(z.string(), "`flotilla-file:` and the SHA-256 of its bytes."),
    mediaType: z.string(),
    filename: z.string().optional(),
    size: z.int(),
  }),
  "A file as a message refers to it: a part of its `parts`.",
);

const bytes = z.string();

const uploadQuery = {
  filename: described(z.string().min(1).max(255), "Its name for people.").optional(),
  size: described(
    wholeNumber({ min: 0, max: Number.MAX_SAFE_INTEGER }),
    "Its bytes, to be refused before they are sent. Default: `Content-Length`.",
  ).optional(),
  sha256: described(
    z.string().max(64),
    "Refused where the bytes that arrive have another SHA-256.",
  ).optional(),
};

export const fileSpecs = {
  upload: spec({
    method: "post",
    path: `${sessionPath}/files`,
    operationId: "uploadFile",
    tag: "sessions",
    summary:
      "Store a file for a message of this session. The body is its bytes, `Content-Type` its type. One that no message has within an hour is deleted.",
    verb: "sessions:write",
    query: z.strictObject(uploadQuery),
    body: z.unknown(),
    bodyTypes: ["application/octet-stream"],
    answers: { 201: filePart },
    errors: [...sessionErrors, "payload_too_large"],
  }),
  download: spec({
    method: "get",
    path: `${sessionPath}/files/{hash}`,
    operationId: "readFile",
    tag: "sessions",
    summary: "The bytes of a file that this session refers to, or a `Range` of them.",
    verb: "sessions:read",
    answerType: "application/octet-stream",
    answers: { 200: bytes, 206: bytes, 304: bytes, 416: bytes },
    errors: sessionErrors,
  }),
  access: spec({
    method: "post",
    path: `${sessionPath}/file-access`,
    operationId: "openFiles",
    tag: "sessions",
    summary:
      "Where the files of this session can be read without credentials, such as by an `<img>`, for an hour at least.",
    verb: "sessions:read",
    answers: {
      200: named(
        "FileAccess",
        z.object({
          path: described(z.string(), "A file is at this path, with its hash behind it."),
          expiresAtMs: time(),
        }),
      ),
    },
    errors: sessionErrors,
  }),
  open: spec({
    method: "get",
    path: "/v1/files/{access}/{hash}",
    operationId: "readOpenedFile",
    tag: "sessions",
    summary: "The same bytes by an address that `POST …/file-access` has given, until it expires.",
    open: true,
    answerType: "application/octet-stream",
    answers: { 200: bytes, 206: bytes, 304: bytes, 416: bytes },
    errors: ["not_found"],
  }),
  uploadForTasks: spec({
    method: "post",
    path: "/v1/files",
    operationId: "uploadTaskFile",
    tag: "tasks",
    summary:
      "Store a file for tasks. The answer goes into the inputs of tasks that the same caller stores within an hour; without one it is deleted then.",
    verb: "admin",
    query: z.strictObject({
      ...uploadQuery,
      tenant: described(
        z.string().min(1).max(taskOptions.tenant.maxChars),
        'Whose tasks. Default: that of the caller, or "default".',
      ).optional(),
    }),
    body: z.unknown(),
    bodyTypes: ["application/octet-stream"],
    answers: { 201: filePart },
    errors: ["invalid_input", "payload_too_large", "quota_exceeded", "overloaded", "timeout"],
  }),
  ofTask: spec({
    method: "get",
    path: "/v1/tasks/{taskId}/files/{hash}",
    operationId: "readTaskFile",
    tag: "tasks",
    summary:
      "The bytes of a file that the payload or the result of a task or run refers to, or a `Range` of them. For callers with `payloads:read`.",
    verb: "tasks:read",
    ofTenant: true,
    answerType: "application/octet-stream",
    answers: { 200: bytes, 206: bytes, 304: bytes, 416: bytes },
    errors: ["not_found", "forbidden"],
  }),
} as const;
