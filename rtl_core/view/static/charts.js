// Draws the figures; a click on a point opens the page that it links to.
"use strict";
function drawFigures() {
  for (const place of document.querySelectorAll(".plot")) {
    const figure = JSON.parse(place.dataset.figure);
    const layout = { ...resolve(figure.layout), height: figure.height, autosize: true, hovermode: "closest", hoverdistance: 40 };
    const fresh = !place.hasAttribute("data-drawn");
    Plotly.react(place, resolve(figure.data), layout, { displayModeBar: false, responsive: true, doubleClick: "reset" });
    place.dataset.drawn = "yes";
    if (!fresh) continue;
    place.on("plotly_click", ({ points: [point] }) => {
      const there = point.data.links?.[point.pointNumber];
      if (there) location.href = there;
    });
  }
}
drawFigures();
document.getElementById("theme").addEventListener("click", drawFigures);
addEventListener("filled", drawFigures);
