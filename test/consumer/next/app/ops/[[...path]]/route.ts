// As Node loads them, and not bundled: they start threads and read files of their own.
const { connect } = await import(/* webpackIgnore: true */ "flotilla");
const { dashboard } = await import(/* webpackIgnore: true */ "flotilla/dashboard");

const flotilla = connect(process.env["FLOTILLA_STORE"]!);

export const { GET, POST, PUT, DELETE, OPTIONS } = dashboard(flotilla, {
  origins: ["https://app.example.com"],
  login: (request) =>
    request.headers.get("cookie")?.includes("who=ada") ? { user: "ada", role: "operator" } : null,
}).next;
