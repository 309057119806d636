/** Where whatever escapes would send a request. Nothing listens there, and no page may even try. */
const away = "http://127.0.0.1:9/leak";

/** What a user would send who wants a page to do something. */
export const hostileTexts: readonly string[] = [
  `<img src=x onerror="window.hit='img'">`,
  `<img src="${away}.png">`,
  `<script>window.hit = 'script'</script>`,
  `<svg onload="window.hit='svg'"><animate onbegin="window.hit='svg'"></svg>`,
  `<iframe src="${away}"></iframe><object data="${away}"></object>`,
  `<style>@import url(${away}.css); body { display: none }</style>`,
  `<meta http-equiv="refresh" content="0;url=${away}"><base href="${away}">`,
  `</p></article><form action="${away}"><button autofocus onfocus="window.hit='form'">`,
  `[press me](javascript:window.hit='link') javascript:window.hit='bare'`,
  `<a href="javascript:window.hit='anchor'">press me</a>`,
  `javascript://127.0.0.1/%0Awindow.hit='address' file:///etc/passwd chrome://settings`,
  `![a picture](${away}.png) ![data](data:image/svg+xml,<svg onload=alert(1)>)`,
  `[data](data:text/html,<script>window.hit='data'</script>) vbscript:msgbox(1)`,
  `<link rel="stylesheet prefetch dns-prefetch" href="${away}.css">`,
  "{{constructor.constructor('window.hit=1')()}} ${window.hit=1} &lt;img src=x onerror=alert(1)&gt;",
];

/** What confuses the eye and the layout. */
export const confusingTexts: readonly string[] = [
  "\u202Etxt.exe\u202C and \u2066isolated\u2069 \u200F\u200E",
  "\u202Enever closed",
  "Z\u0300\u0301\u0302\u0303\u0304".repeat(40),
  "w".repeat(10_000),
  "\uD83D\uDC68\u200D\uD83D\uDC69\u200D\uD83D\uDC67".repeat(200),
  "[object Object] undefined null NaN __proto__ constructor",
];

/** Parts of an answer other than its text, each with something in it that isn't harmless. */
export function hostileChunks(): unknown[] {
  const [image, , script] = hostileTexts;
  return [
    { type: "reasoning-start", id: "r" },
    { type: "reasoning-delta", id: "r", delta: image },
    { type: "reasoning-end", id: "r" },
    { type: "source-url", sourceId: "s1", url: "javascript:window.hit='source'", title: image },
    { type: "source-url", sourceId: "s2", url: `data:text/html,${script}` },
    { type: "file", url: `${away}.png`, mediaType: "image/png" },
    { type: "file", url: "data:image/svg+xml,<svg onload=alert(1)>", mediaType: "image/svg+xml" },
    { type: "data-html", data: { html: image } },
    {
      type: "tool-input-available",
      toolCallId: "t1",
      toolName: `order<img src=x onerror=window.hit=1>`,
      input: { [image!]: script, nested: { html: image } },
    },
    { type: "tool-output-available", toolCallId: "t1", output: { html: image, taskId: "../../x" } },
    { type: "tool-input-available", toolCallId: "t2", toolName: "second", input: image },
    { type: "tool-output-error", toolCallId: "t2", errorText: script },
  ];
}
