// The name of the viewer's time zone travels in a cookie, so that pages can show times as the viewer's clock does.
"use strict";
{
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone && !document.cookie.split("; ").includes(`timezone=${zone}`)) {
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `timezone=${zone}; path=/; max-age=31536000; SameSite=Lax${secure}`;
  }
}
